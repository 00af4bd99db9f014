# SPDX-License-Identifier: BSD-3-Clause
"""
Two agents of NIXL move blocks between their memory, as an inference server moves
the cache of keys and values; every byte is checked.

usage: kv.py target|initiator FOLDER JOB...

JOB is COUNT:SIZE, where SIZE is like 4k or 1g, or "mix": each block written,
then read; or one of the mishaps below, MISHAP=COUNT:SIZE for its blocks.  The
agents meet by files in FOLDER; who kills one when asked to is the caller.
KV_THREAD=n is an agent without NIXL's progress thread; KV_DEVICES names the
adapters that NIXL is to use; KV_MEMORY=cuda moves memory of a GPU: the target's
is the first, the initiator's the last; KV_MEMORY=mappable such as can be exported.
"""
import ctypes
import importlib.util
import os
import struct
import sys
import time
import traceback

import numpy as np

ROLES = ("target", "initiator")
SIZES = [1 << 10, 4 << 10, 16 << 10, 45 << 10, 64 << 10]
PIECE = 64 << 10
RAMP = np.arange(PIECE // 8, dtype="u8") << np.uint64(32)
HUGE = 2 << 20  # what allocations that can be exported are multiples of
GUARD = 4096  # bytes of EMPTY on both sides of a buffer
EMPTY = 0xa5  # what no block begins with
EMPTY_WORD = np.uint64(EMPTY * 0x0101010101010101)
FOLDER = ""


def put_file(name, data):
    path = os.path.join(FOLDER, name)
    with open(path + ".new", "wb") as file:
        file.write(data)
    os.rename(path + ".new", path)


def in_time(end, what):
    assert not os.path.exists(os.path.join(FOLDER, "failed")), \
        "the other side failed"
    assert time.monotonic() < end, what


def get_file(name, seconds=60):
    path = os.path.join(FOLDER, name)
    end = time.monotonic() + seconds
    while not os.path.exists(path):
        in_time(end, f"no {name} from the other side")
        time.sleep(0.01)
    with open(path, "rb") as file:
        return file.read()


def number(word):
    units = {"k": 1 << 10, "m": 1 << 20, "g": 1 << 30}
    if word[-1] in units:
        return int(word[:-1]) * units[word[-1]]
    return int(word)


class Blocks:
    """Where each block lies: here in order, there shuffled."""

    def __init__(self, job):
        count, size = job.split(":")
        rng = np.random.default_rng(7)
        if size == "mix":
            self.sizes = rng.choice(SIZES, int(count))
        else:
            self.sizes = np.full(int(count), number(size))
        self.total = int(self.sizes.sum())
        self.here = np.cumsum(self.sizes) - self.sizes
        self.order = rng.permutation(len(self.sizes))
        there = np.cumsum(self.sizes[self.order]) - self.sizes[self.order]
        self.there = np.empty_like(there)
        self.there[self.order] = there

    def pieces(self, offsets, seed):
        """Each PIECE or less of a block: where it lies, what belongs there."""
        for block, (at, size) in enumerate(zip(offsets, self.sizes)):
            for begin in range(0, size, PIECE):
                end = min(begin + PIECE, size)
                key = np.uint64((block * 1000003 + begin + seed) << 8 | 1)
                yield at + begin, at + end, RAMP[:(end - begin) // 8] + key

    def fill(self, memory, offsets, seed):
        for begin, end, data in self.pieces(offsets, seed):
            memory[begin:end].view("u8")[:] = data

    def check(self, memory, offsets, seed, or_empty=False):
        for begin, end, data in self.pieces(offsets, seed):
            seen = memory[begin:end].view("u8")
            right = (seen == data) | (or_empty & (seen == EMPTY_WORD))
            assert right.all(), f"wrong data within {begin}:{end}"


class HostMemory:
    kind = "DRAM"
    device = 0

    def __init__(self, size, _):
        self.array = np.full(size, EMPTY, dtype="u1")
        self.at = self.array.ctypes.data

    def glance(self, offsets):
        return self.array[offsets]

    def push(self):
        pass

    def pull(self):
        pass


class CudaMemory:
    """Memory of a GPU, with an array of the host to fill and to read."""
    kind = "VRAM"

    def __init__(self, size, role):
        self.driver = ctypes.CDLL("libcuda.so.1")
        context, count = ctypes.c_void_p(), ctypes.c_int()
        self.call("cuInit", 0)
        self.call("cuDeviceGetCount", ctypes.byref(count))
        self.device = ROLES.index(role) and count.value - 1
        self.call("cuDevicePrimaryCtxRetain", ctypes.byref(context),
                  self.device)
        self.call("cuCtxPushCurrent_v2", context)
        self.stream = ctypes.c_void_p()
        self.call("cuStreamCreate", ctypes.byref(self.stream), 1)
        self.at = self.allocate(size)
        self.array = np.full(size, EMPTY, dtype="u1")
        self.push()

    def allocate(self, size):
        at, handle = ctypes.c_uint64(), ctypes.c_uint64()
        if os.environ["KV_MEMORY"] == "cuda":
            self.call("cuMemAlloc_v2", ctypes.byref(at), ctypes.c_size_t(size))
            return at.value
        # CUmemAllocationProp and CUmemAccessDesc of cuda.h: pinned memory of a
        # device, with a file descriptor; read and write
        size = ctypes.c_size_t(-(-size // HUGE) * HUGE)
        none = ctypes.c_uint64(0)
        kind = struct.pack("iiiiQQ", 1, 1, 1, self.device, 0, 0)
        access = struct.pack("iii", 1, self.device, 3)
        self.call("cuMemCreate", ctypes.byref(handle), size, kind, none)
        self.call("cuMemAddressReserve", ctypes.byref(at), size, none, none,
                  none)
        self.call("cuMemMap", at, size, none, handle, none)
        self.call("cuMemSetAccess", at, size, access, ctypes.c_size_t(1))
        return at.value

    def call(self, name, *args):
        status = getattr(self.driver, name)(*args)
        assert status == 0, f"{name}: {status}"

    def copy(self, to, source, size):
        self.call("cuMemcpyAsync", ctypes.c_uint64(to),
                  ctypes.c_uint64(source), ctypes.c_size_t(size), self.stream)

    def wait(self):
        self.call("cuStreamSynchronize", self.stream)

    def push(self):
        self.copy(self.at, self.array.ctypes.data, self.array.nbytes)
        self.wait()

    def pull(self):
        self.copy(self.array.ctypes.data, self.at, self.array.nbytes)
        self.wait()

    def glance(self, offsets):
        """A few of the bytes at @offsets: a transfer is soon over."""
        some = offsets[::len(offsets) // 32 + 1]
        seen = np.zeros(len(some), dtype="u1")
        for number, offset in enumerate(some):
            self.copy(seen.ctypes.data + number, self.at + int(offset), 1)
        self.wait()
        return seen


def find_nixl():
    for name in ("nixl_cu13", "nixl_cu12"):
        if importlib.util.find_spec(name):
            return importlib.import_module(f"{name}._api")
    raise ImportError("neither nixl_cu13 nor nixl_cu12")


class Agent:
    def __init__(self, role):
        nixl = find_nixl()
        self.role = role
        self.peer = ROLES[role == "target"]
        thread = os.environ.get("KV_THREAD", "y") == "y"
        self.agent = nixl.nixl_agent(role, nixl.nixl_agent_config(
            enable_prog_thread=thread, backends=[]))
        devices = os.environ.get("KV_DEVICES")
        self.agent.create_backend(
            "UCX", {"device_list": devices} if devices else {})
        self.got = []

    def register(self, size):
        """A buffer of @size bytes between guards; its address to the peer."""
        memory = CudaMemory if "KV_MEMORY" in os.environ else HostMemory
        self.memory = memory(size + 2 * GUARD, self.role)
        self.buffer = self.memory.array[GUARD:GUARD + size]
        at, device = self.memory.at + GUARD, self.memory.device
        self.here = at, device
        self.registered = self.agent.register_memory(
            [(at, size, device, "")], self.memory.kind)
        put_file(f"{self.role}.at", f"{at} {device}".encode())
        put_file(f"{self.role}.md", self.agent.get_agent_metadata())
        self.agent.add_remote_agent(get_file(f"{self.peer}.md"))
        self.there = [int(word)
                      for word in get_file(f"{self.peer}.at").split()]

    def fill(self, blocks, offsets, seed):
        blocks.fill(self.buffer, offsets, seed)
        self.memory.push()

    def clear(self):
        self.buffer[:] = EMPTY
        self.memory.push()

    def check(self, blocks, offsets, seed):
        self.memory.pull()
        blocks.check(self.buffer, offsets, seed)
        self.guards_hold()

    def guards_hold(self):
        array = self.memory.array
        assert (array[:GUARD] == EMPTY).all() and \
            (array[-GUARD:] == EMPTY).all(), "beside the buffer"

    def say(self, word):
        self.agent.send_notif(self.peer, word.encode())

    def hear(self, seconds=60):
        """The next notification."""
        end = time.monotonic() + seconds
        while not self.got:
            in_time(end, "no word from the other side")
            notes = self.agent.get_new_notifs()
            self.got += [m.decode() for m in notes.get(self.peer, [])]
            if not self.got:
                time.sleep(0.0005)
        return self.got.pop(0)

    def start(self, operation, blocks, note=b""):
        def descs(base, device, offsets):
            rows = np.empty((len(offsets), 3), dtype="u8")
            rows[:, 0] = base + offsets
            rows[:, 1] = blocks.sizes
            rows[:, 2] = device
            return self.agent.get_xfer_descs(rows, self.memory.kind)
        here = descs(*self.here, blocks.here)
        there = descs(*self.there, blocks.there)
        handle = self.agent.initialize_xfer(operation, here, there, self.peer,
                                            note)
        begin = time.monotonic()
        return handle, self.agent.transfer(handle), begin

    def finish(self, handle, state):
        end = time.monotonic() + 60
        while state == "PROC":
            assert time.monotonic() < end, "the transfer hangs"
            state = self.agent.check_xfer_state(handle)
        return state

    def move(self, operation, blocks, note=b""):
        handle, state, begin = self.start(operation, blocks, note)
        state = self.finish(handle, state)
        took = time.monotonic() - begin
        assert state == "DONE", state
        self.agent.release_xfer_handle(handle)
        return took

    def unchanged(self, what):
        """From here on nothing lands here."""
        self.memory.pull()
        before = self.buffer.copy()
        end = time.monotonic() + 0.5
        while time.monotonic() < end:
            self.agent.get_new_notifs()
            time.sleep(0.01)
        self.memory.pull()
        assert np.array_equal(before, self.buffer), f"bytes came {what}"
        self.guards_hold()


def moves(agent, blocks, job):
    """Each block written, then read."""
    if agent.role == "target":
        word = agent.hear()
        assert word == f"wrote {job}", word
        agent.check(blocks, blocks.there, 1)
        agent.fill(blocks, blocks.there, 2)
        agent.say("look")
        assert agent.hear() == "read"
    else:
        agent.fill(blocks, blocks.here, 1)
        took = agent.move("WRITE", blocks, f"wrote {job}".encode())
        print(f"WRITE {job} {blocks.total} {took:.6f}", flush=True)
        assert agent.hear() == "look"
        agent.clear()
        took = agent.move("READ", blocks)
        print(f"READ {job} {blocks.total} {took:.6f}", flush=True)
        agent.check(blocks, blocks.here, 2)
        agent.say("read")


def catch(agent, offsets, start=None):
    """
    Returns amid a transfer: some blocks have landed, and not all.  Where all
    have, it was too late: there is another, which @start begins or the peer.
    """
    end = time.monotonic() + 30
    running = start and start()
    while True:
        landed = agent.memory.glance(GUARD + offsets) != EMPTY
        if landed.any() and not landed.all():
            return running
        assert time.monotonic() < end, "never amid a transfer"
        if landed.all():
            assert not start or agent.finish(*running[:2]) == "DONE"
            agent.clear()
            running = start and start()


def until_error(agent, operation, blocks, running=None):
    """Transfers until one fails."""
    while True:
        try:
            running = running or agent.start(operation, blocks)
            state = agent.finish(*running[:2])
        except AssertionError:
            raise
        except Exception as error:
            state = str(error)
        if state != "DONE":
            print(f"error: {state}", flush=True)
            return
        running = None


def killed_target(agent, blocks):
    """The target of a READ dies: an error, and no byte after it."""
    if agent.role == "target":
        agent.fill(blocks, blocks.there, 1)
        agent.say("look")
        agent.hear()
    assert agent.hear() == "look"
    running = catch(agent, blocks.here, lambda: agent.start("READ", blocks))
    put_file("kill", b"")
    until_error(agent, "READ", blocks, running)
    agent.unchanged("after the error")


def killed_initiator(agent, blocks):
    """The initiator of a WRITE dies: no byte after the memory is released."""
    if agent.role == "initiator":
        agent.fill(blocks, blocks.here, 1)
        assert agent.hear() == "go"
        until_error(agent, "WRITE", blocks)
        assert False, "the initiator lives"
    agent.say("go")
    catch(agent, blocks.there)
    put_file("kill", b"")
    get_file("killed")
    agent.agent.deregister_memory(agent.registered)
    agent.unchanged("after the memory was released")


def cancelled(agent, blocks):
    """
    The initiator lets go of a READ, which stops nothing, over UCX's tcp either:
    what still lands is what belongs there.
    """
    if agent.role == "target":
        agent.fill(blocks, blocks.there, 1)
        agent.say("look")
        get_file("over")
        return
    assert agent.hear() == "look"
    handle, _, _ = catch(agent, blocks.here,
                         lambda: agent.start("READ", blocks))
    agent.agent.release_xfer_handle(handle)
    agent.agent.remove_remote_agent(agent.peer)
    time.sleep(1)
    agent.unchanged("a second after the peer was removed")
    blocks.check(agent.buffer, blocks.here, 1, or_empty=True)
    put_file("over", b"")


def revoked(agent, blocks):
    """The target takes its memory back: no byte after, an error at the other."""
    if agent.role == "initiator":
        agent.fill(blocks, blocks.here, 1)
        assert agent.hear() == "go"
        until_error(agent, "WRITE", blocks)
        put_file("over", b"")
        return
    agent.say("go")
    catch(agent, blocks.there)
    agent.agent.deregister_memory(agent.registered)
    agent.unchanged("after the memory was released")
    get_file("over")


def asleep(agent, blocks):
    """The target calls NIXL no more: its thread alone serves the other side."""
    if agent.role == "target":
        agent.say("go")
        get_file("over")
        agent.check(blocks, blocks.there, 1)
        return
    agent.fill(blocks, blocks.here, 1)
    assert agent.hear() == "go"
    took = agent.move("WRITE", blocks)
    agent.clear()
    took += agent.move("READ", blocks)
    agent.check(blocks, blocks.here, 1)
    print(f"both {took:.6f}", flush=True)
    put_file("over", b"")


MISHAPS = {f.__name__: f for f in
           (killed_target, killed_initiator, cancelled, revoked, asleep)}


def main():
    global FOLDER
    role, FOLDER = sys.argv[1:3]
    jobs = sys.argv[3:]
    mishaps = {job: MISHAPS.get(job.split("=")[0]) for job in jobs}
    blocks = {job: Blocks((job.split("=")[1:] or ["2000:64k"])[0]
                          if mishaps[job] else job) for job in jobs}
    agent = Agent(role)
    agent.register(max(b.total for b in blocks.values()))
    for job in jobs:
        if mishaps[job]:
            mishaps[job](agent, blocks[job])
        else:
            moves(agent, blocks[job], job)
    print("well", flush=True)
    if mishaps[jobs[-1]]:
        return
    # each waits for the other before it leaves
    agent.say("bye")
    assert agent.hear() == "bye"


if __name__ == "__main__":
    status = 0
    try:
        main()
    except BaseException:
        traceback.print_exc()
        put_file("failed", b"")
        status = 1
    # Without destructors: the libnl-route in NIXL 1.5.1's wheel crashes in
    # exit().  Weft's counters are written when the agent is gone.
    sys.stdout.flush()
    os._exit(status)
