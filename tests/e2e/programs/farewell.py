# SPDX-License-Identifier: BSD-3-Clause
"""
Many clients of one listener, all in one process: the server closes each
endpoint at once behind its last message, which must not overtake it.

usage: farewell.py CLIENTS
"""
import asyncio
import sys

import numpy as np
import ucxx

COUNT = 10


async def meet(ep, seed):
    got = np.zeros(COUNT, dtype="i8")
    await asyncio.gather(ep.send(np.arange(seed, seed + COUNT)),
                         ep.recv(got))
    return got


async def client(port):
    ep = await ucxx.create_endpoint("127.0.0.1", port, connect_timeout=30)
    got = await meet(ep, 1)
    await ep.close()
    return np.array_equal(got, np.arange(2, 2 + COUNT))


async def main():
    async def serve(ep):
        # the endpoint goes with the last reference to it
        await meet(ep, 2)

    listener = ucxx.create_listener(serve, connect_timeout=30)
    right = await asyncio.gather(*[client(listener.port)
                                   for _ in range(int(sys.argv[1]))])
    assert all(right), right


asyncio.run(asyncio.wait_for(main(), 60))
