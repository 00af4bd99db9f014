# SPDX-License-Identifier: BSD-3-Clause
"""
Two copies of UCX in one process: ucxx's and NIXL's, each of which moves SIZE
bytes, checked.

usage: two_ucx.py SIZE
"""
import asyncio
import os
import sys
import traceback

import numpy as np
import ucxx
from nixl_cu12._api import nixl_agent, nixl_agent_config


def pattern(size, seed):
    return np.random.default_rng(seed).integers(0, 256, size, dtype="u1")


async def over_ucxx(size):
    got = np.zeros(size, dtype="u1")
    done = asyncio.Event()

    async def receive(ep):
        await ep.recv(got)
        done.set()

    listener = ucxx.create_listener(receive, endpoint_error_handling=True)
    ep = await ucxx.create_endpoint("127.0.0.1", listener.port,
                                    endpoint_error_handling=True)
    await ep.send(pattern(size, 1))
    await asyncio.wait_for(done.wait(), 30)
    assert np.array_equal(got, pattern(size, 1)), "ucxx: wrong data"


def over_nixl(size):
    here, there = pattern(size, 2), np.zeros(size, dtype="u1")
    source, target = (nixl_agent(name, nixl_agent_config(backends=["UCX"]))
                      for name in ("source", "target"))
    for agent, memory in ((source, here), (target, there)):
        agent.register_memory([(memory.ctypes.data, size, 0, "")], "DRAM")
    source.add_remote_agent(target.get_agent_metadata())
    handle = source.initialize_xfer(
        "WRITE", source.get_xfer_descs([(here.ctypes.data, size, 0)], "DRAM"),
        target.get_xfer_descs([(there.ctypes.data, size, 0)], "DRAM"), "target")
    state = source.transfer(handle)
    while state == "PROC":
        state = source.check_xfer_state(handle)
    assert state == "DONE", state
    assert np.array_equal(there, pattern(size, 2)), "NIXL: wrong data"
    source.release_xfer_handle(handle)


def main():
    size = int(sys.argv[1])
    asyncio.run(over_ucxx(size))
    over_nixl(size)
    asyncio.run(over_ucxx(size))
    with open("/proc/self/maps") as maps:
        names = {line.split()[-1] for line in maps if "libucp" in line}
    print(f"{len(names)} copies", flush=True)


if __name__ == "__main__":
    status = 0
    try:
        main()
    except BaseException:
        traceback.print_exc()
        status = 1
    ucxx.reset()
    # see kv.py
    sys.stdout.flush()
    os._exit(status)
