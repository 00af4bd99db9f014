# SPDX-License-Identifier: BSD-3-Clause
"""
A client forks amid its messages to a server, and the child exits as Python
does, with ucxx's destructors: the messages go on.

usage: forked.py
"""
import asyncio
import multiprocessing
import os
import signal
import sys
import time

from exchange import pattern, receive, server

SIZES = [100000 + i for i in range(40)]


def reap(child):
    """ucxx waits for its threads, which the child has not: 25 s, or for good."""
    end = time.monotonic() + 35
    while not os.waitpid(child, os.WNOHANG)[0]:
        if time.monotonic() > end:
            os.kill(child, signal.SIGKILL)
            end = float("inf")
        time.sleep(0.1)


async def client(port):
    import ucxx
    ep = await ucxx.create_endpoint("127.0.0.1", port,
                                    endpoint_error_handling=True)
    for i, size in enumerate(SIZES):
        if i == 10:
            child = os.fork()
            if not child:
                sys.exit(0)
        await ep.send(pattern(size, 1))
        await receive(ep, size, 2)
        if i == 20:
            reap(child)
    await ep.send(pattern(1, 3))
    await ep.close()


def main():
    spawn = multiprocessing.get_context("spawn")
    ports = spawn.Queue()
    peer = spawn.Process(target=server, args=(SIZES, ports))
    peer.start()
    asyncio.run(asyncio.wait_for(client(ports.get(timeout=30)), 60))
    peer.join(30)
    assert peer.exitcode == 0, peer.exitcode
    print("went on")


if __name__ == "__main__":
    main()
