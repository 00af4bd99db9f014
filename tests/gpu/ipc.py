#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""One of the two sides of ipc.sh: a program that uses CUDA IPC itself.

ipc.py cupy|torch FOLDER SIDE GPU prints one line: how it ended. FOLDER is the
two sides' own.
"""
import os
import sys
import time

WORDS = 16 << 20
LIMIT = 60


def put(folder, name, data):
    path = os.path.join(folder, name)
    with open(path + ".new", "wb") as f:
        f.write(data)
    os.rename(path + ".new", path)


def get(folder, name):
    path = os.path.join(folder, name)
    end = time.monotonic() + LIMIT
    while not os.path.exists(path):
        if time.monotonic() > end:
            raise TimeoutError(f"no {name} of the other side's")
        time.sleep(0.02)
    with open(path, "rb") as f:
        return f.read()


def pattern(xp, side):
    return (xp.arange(WORDS, dtype="uint32") * 2654435761 + side).astype("uint32")


def run_cupy(folder, side, gpu):
    """Each opens the other's handle, and compares what it reads by it."""
    import cupy
    from cupy.cuda import runtime
    runtime.setDevice(gpu)
    mine = runtime.malloc(WORDS * 4)
    view(cupy, mine)[...] = pattern(cupy, side)
    runtime.deviceSynchronize()
    put(folder, f"handle.{side}", runtime.ipcGetMemHandle(mine))
    handle = get(folder, f"handle.{1 - side}")
    try:
        theirs = view(cupy, runtime.ipcOpenMemHandle(handle))
        right = bool((theirs == pattern(cupy, 1 - side)).all())
        return "right" if right else "WRONG"
    finally:
        put(folder, f"done.{side}", b"")
        get(folder, f"done.{1 - side}")


def view(cupy, pointer):
    memory = cupy.cuda.UnownedMemory(pointer, WORDS * 4, None)
    return cupy.ndarray((WORDS,), "uint32", cupy.cuda.MemoryPointer(memory, 0))


def run_torch(folder, side, gpu):
    """Symmetric memory, its CUDA backend; the sides meet by gloo."""
    import torch
    import torch.distributed as dist
    import torch.distributed._symmetric_memory as symmetric
    torch.cuda.set_device(gpu)
    dist.init_process_group("gloo", init_method=f"file://{folder}/meet",
                            rank=side, world_size=2)
    device = torch.device("cuda", gpu)
    mine = symmetric.empty(WORDS, dtype=torch.int32, device=device)
    mine.copy_(torch.arange(WORDS, dtype=torch.int32, device=device) * 7 + side)
    torch.cuda.synchronize()
    handle = symmetric.rendezvous(mine, dist.group.WORLD.group_name)
    dist.barrier()
    theirs = handle.get_buffer(1 - side, (WORDS,), torch.int32)
    want = torch.arange(WORDS, dtype=torch.int32, device=device) * 7 + 1 - side
    right = bool((theirs == want).all())
    dist.barrier()
    return "right" if right else "WRONG"


def main():
    kind, folder, side, gpu = sys.argv[1:]
    try:
        end = {"cupy": run_cupy, "torch": run_torch}[kind](folder, int(side), int(gpu))
    except Exception as error:  # what a user would see
        end = "fails: " + str(error).strip().split("\n")[0][:160]
    print(f"pid {os.getpid()}: {end}", flush=True)
    # neither library's end matters here
    os._exit(0)


main()
