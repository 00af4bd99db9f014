# SPDX-License-Identifier: BSD-3-Clause
"""
A client and a server exchange messages over ucxx, error handling on, each
checked byte by byte; sizes from the arguments, each goes there and back.

usage: exchange.py SIZE...
"""
import asyncio
import multiprocessing
import os
import sys

import numpy as np


def pattern(size, seed):
    return np.random.default_rng(seed * 1000003 + size).integers(
        0, 256, size, dtype="u1")


async def receive(ep, size, seed):
    got = np.full(size, 0xa5, dtype="u1")
    await ep.recv(got)
    assert np.array_equal(got, pattern(size, seed)), (size, seed)


async def serve(sizes, ports):
    import ucxx
    done = asyncio.Event()

    async def talk(ep):
        for size in sizes:
            await receive(ep, size, 1)
            await ep.send(pattern(size, 2))
        # The client goes first, so that nothing is lost at the end.
        await receive(ep, 1, 3)
        await ep.close()
        done.set()

    listener = ucxx.create_listener(talk, endpoint_error_handling=True)
    ports.put(listener.port)
    await asyncio.wait_for(done.wait(), 60)


def server(sizes, ports):
    asyncio.run(serve(sizes, ports))


async def client(sizes, port):
    import ucxx
    ep = await ucxx.create_endpoint("127.0.0.1", port,
                                    endpoint_error_handling=True)
    for size in sizes:
        await ep.send(pattern(size, 1))
        await receive(ep, size, 2)
    await ep.send(pattern(1, 3))
    await ep.close()


def main():
    sizes = [int(arg) for arg in sys.argv[1:]]
    spawn = multiprocessing.get_context("spawn")
    ports = spawn.Queue()
    child = spawn.Process(target=server, args=(sizes, ports))
    child.start()
    asyncio.run(asyncio.wait_for(client(sizes, ports.get(timeout=30)), 60))
    child.join(30)
    assert child.exitcode == 0, child.exitcode
    import ucxx
    version = ".".join(map(str, ucxx.get_ucx_version()))
    print(f"pid {os.getpid()} server {child.pid} ucx {version}")


if __name__ == "__main__":
    main()
