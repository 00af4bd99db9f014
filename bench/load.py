# SPDX-License-Identifier: BSD-3-Clause
"""
Large and small messages at once, by the connections that Dask uses.

usage: load.py serve URL
       load.py load URL SECONDS

Of two connections to the server one is kept full of blocks, and over the other a
small message goes there and back again and again. Prints the microseconds that
this took, sorted, once the blocks have flowed for SECONDS / 2.
"""
import asyncio
import itertools
import json
import os
import sys
import time

import distributed_ucxx  # noqa: F401 (ucxx://, where it is not registered)
import numpy
from distributed.comm import connect, listen
from distributed.protocol import to_serialize

BLOCK = 4 << 20
APART = 0.01  # seconds between small messages


async def answer(comm):
    while True:
        message = await comm.read()
        if isinstance(message, int):
            await comm.write(message)
        elif not (message["block"] == message["number"] % 256).all():
            raise RuntimeError(f"block {message['number']} has other bytes")


async def serve(url):
    async with listen(url, answer):
        print("ready", flush=True)
        await asyncio.Event().wait()


async def fill(comm):
    for number in itertools.count():
        block = numpy.full(BLOCK, number % 256, "u1")
        await comm.write({"number": number, "block": to_serialize(block)})
        await asyncio.sleep(0)  # a write may return at once


async def load(url, seconds):
    bulk, small = await connect(url), await connect(url)
    filling = asyncio.create_task(fill(bulk))
    await asyncio.sleep(seconds / 2)
    times, end, number = [], time.monotonic() + seconds / 2, 0
    while time.monotonic() < end:
        number += 1
        start = time.perf_counter()
        await small.write(number)
        if await small.read() != number:
            raise RuntimeError("another answer")
        times.append((time.perf_counter() - start) * 1e6)
        await asyncio.sleep(APART)
    if filling.done():
        await filling
    print(json.dumps(sorted(times)), flush=True)
    os._exit(0)  # with a block half sent


if __name__ == "__main__":
    asyncio.run(serve(sys.argv[2]) if sys.argv[1] == "serve"
                else load(sys.argv[2], float(sys.argv[3])))
