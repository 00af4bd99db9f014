# SPDX-License-Identifier: BSD-3-Clause
"""
Imports the modules that are named, in that order, sends a MiB to itself by
UCX and back, and compares it.

usage: imported.py MODULE...
"""
import asyncio
import importlib
import sys

import numpy

for name in sys.argv[1:]:
    importlib.import_module(name)
import ucxx  # noqa: E402 (there already)


async def main():
    sent = numpy.arange(1 << 18, dtype="u4").view("u1")
    received = numpy.zeros_like(sent)

    async def echo(ep):
        data = numpy.empty_like(sent)
        await ep.recv(data)
        await ep.send(data)
        await ep.close()

    listener = ucxx.create_listener(echo)
    ep = await ucxx.create_endpoint("127.0.0.1", listener.port)
    await asyncio.gather(ep.send(sent), ep.recv(received))
    same = (sent == received).all()
    await ep.close()
    listener.close()
    return f"{sent.nbytes} bytes, " + ("right" if same else "wrong")


ucxx.init()
print(asyncio.run(main()))
