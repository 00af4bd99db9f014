# SPDX-License-Identifier: BSD-3-Clause
"""
What vLLM's prefill and decode servers do with NIXL, without vLLM: a cache of keys
and values in blocks, which prefill fills for a request and decode pulls or has
pushed to it, many requests at once.  Every byte that arrives is checked.  A plain
NIXL program, which knows nothing of weft.

usage: kv_agent.py prefill [--port PORT] [SHAPE]
       kv_agent.py decode HOST[:PORT]... [--requests N] [--at-once N] [--push] [SHAPE]

SHAPE, the same on both sides: --regions N (layers, keys and values apart),
--block BYTES, --blocks N in each region, --take N of them for a request,
--memory host|cuda.  Prefill serves until it is stopped.  Decode asks all HOSTs in
turn; those that do not answer yet are asked again, and what a lost one owed is
asked of another.  It ends after N requests, with 0 when it is stopped (SIGTERM),
by a line of JSON, and with status 0 if all was right.
"""
import argparse
import base64
import ctypes
import importlib.util
import json
import os
import random
import signal
import socket
import sys
import time
import traceback
import uuid

import numpy as np

PORT = 5600  # as vLLM's side channel
RETRY_S = 0.5  # between attempts to reach a prefill server
LATE_S = 5  # what a lost peer has sent by push may land until then


def find_nixl():
    for name in ("nixl_cu13", "nixl_cu12"):
        if importlib.util.find_spec(name):
            return importlib.import_module(f"{name}._api")
    raise SystemExit("kv_agent: no NIXL here: pip install nixl")


# ---- the cache ---------------------------------------------------------------

class Cuda:
    """The few calls of CUDA's driver that a cache in a GPU's memory needs."""

    def __init__(self):
        self.driver = ctypes.CDLL("libcuda.so.1")
        context, device = ctypes.c_void_p(), ctypes.c_int()
        self.call("cuInit", 0)
        self.call("cuDeviceGet", ctypes.byref(device), 0)
        self.call("cuDevicePrimaryCtxRetain", ctypes.byref(context), device)
        self.call("cuCtxPushCurrent_v2", context)
        self.stream = ctypes.c_void_p()
        self.call("cuStreamCreate", ctypes.byref(self.stream), 1)

    def call(self, name, *args):
        status = getattr(self.driver, name)(*args)
        if status:
            raise RuntimeError(f"{name}: {status}")

    def allocate(self, size):
        at = ctypes.c_uint64()
        self.call("cuMemAlloc_v2", ctypes.byref(at), ctypes.c_size_t(size))
        return at.value

    def copy(self, to, source, size):
        self.call("cuMemcpyAsync", ctypes.c_uint64(to),
                  ctypes.c_uint64(source), ctypes.c_size_t(size), self.stream)

    def wait(self):
        self.call("cuStreamSynchronize", self.stream)


class Cache:
    """
    Blocks in each of several regions, one allocation each as a layer's tensor is;
    a block of the cache is that number of all regions.
    """

    def __init__(self, args):
        self.block, self.regions = args.block, args.regions
        size = args.blocks * args.block
        self.cuda = Cuda() if args.memory == "cuda" else None
        self.kind = "VRAM" if self.cuda else "DRAM"
        # of the GPU's memory, what is copied to and from it
        self.words = np.zeros((args.regions, args.blocks, args.block // 8), "u8")
        self.at = [self.cuda.allocate(size) if self.cuda else words.ctypes.data
                   for words in self.words]
        self.free = list(range(args.blocks))
        random.shuffle(self.free)
        self.late = []  # when they are free again, and blocks
        self.ramp = np.arange(args.block // 8, dtype="u8")

    def take(self, count):
        while self.late and self.late[0][0] < time.monotonic():
            self.free += self.late.pop(0)[1]
        if len(self.free) < count:
            return None
        taken, self.free = self.free[:count], self.free[count:]
        return taken

    def give_back(self, blocks, may_be_written=False):
        if may_be_written:
            self.late.append((time.monotonic() + LATE_S, blocks))
        else:
            self.free += blocks

    def content(self, request):
        """Of its blocks, in all regions: each word differs."""
        def part(count, bits):
            return np.arange(count, dtype="u8") << np.uint64(bits)
        return (np.uint64(request << 40) + part(self.regions, 32)[:, None, None] +
                part(self.count, 16)[None, :, None] + self.ramp)

    def copy(self, blocks, out):
        if not self.cuda:
            return
        for region in range(self.regions):
            for block in blocks:
                pair = (self.at[region] + block * self.block,
                        self.words[region, block].ctypes.data)
                self.cuda.copy(*(pair if out else pair[::-1]), self.block)
        self.cuda.wait()

    def fill(self, request, blocks):
        self.count = len(blocks)
        self.words[:, blocks] = self.content(request)
        self.copy(blocks, True)

    def is_right(self, request, blocks):
        self.count = len(blocks)
        if self.cuda:
            self.words[:, blocks] = 0
        self.copy(blocks, False)
        return np.array_equal(self.words[:, blocks], self.content(request))

    def forget(self, blocks):
        """So that what does not arrive is seen."""
        self.words[:, blocks] = np.uint64(0xa5a5a5a5a5a5a5a5)
        self.copy(blocks, True)


def descriptors(at, blocks, block):
    """Of all blocks of all regions, as NIXL takes them: block by region."""
    rows = np.zeros((len(at), blocks, 3), dtype="u8")
    rows[:, :, 0] = np.array(at, "u8")[:, None] + \
        np.arange(blocks, dtype="u8") * np.uint64(block)
    rows[:, :, 1] = block
    return rows.reshape(-1, 3)


# ---- the side channel: lines of JSON over TCP --------------------------------

class Gone(Exception):
    pass


class Channel:
    def __init__(self, sock):
        self.sock = sock
        sock.setblocking(False)
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.got = b""

    def say(self, **what):
        data = json.dumps(what).encode() + b"\n"
        try:
            while data:
                try:
                    data = data[self.sock.send(data):]
                except BlockingIOError:
                    time.sleep(0.001)
        except OSError as error:
            raise Gone(error) from None

    def hear(self):
        """What has come so far, a list."""
        try:
            while True:
                data = self.sock.recv(1 << 20)
                if not data:
                    raise Gone("it closed the side channel")
                self.got += data
        except BlockingIOError:
            pass
        except OSError as error:
            raise Gone(error) from None
        *lines, self.got = self.got.split(b"\n")
        return [json.loads(line) for line in lines]


# ---- agents ------------------------------------------------------------------

class Agent:
    def __init__(self, args):
        nixl = find_nixl()
        self.args = args
        # a restarted server is another one
        self.name = f"{args.role}-{uuid.uuid4().hex[:12]}"
        self.agent = nixl.nixl_agent(self.name, nixl.nixl_agent_config(
            backends=["UCX"]))
        self.cache = Cache(args)
        self.agent.register_memory(
            [(at, args.blocks * args.block, 0, "") for at in self.cache.at],
            self.cache.kind)
        self.own = self.agent.prep_xfer_dlist(
            "NIXL_INIT_AGENT", self.descs(self.cache.at))
        self.notes = {}  # by peer

    def descs(self, at):
        rows = descriptors(at, self.args.blocks, self.args.block)
        return self.agent.get_xfer_descs(rows, self.cache.kind)

    def introduce(self, channel):
        a = self.args
        channel.say(name=self.name, at=self.cache.at,
                    shape=[a.regions, a.block, a.blocks],
                    metadata=base64.b64encode(
                        self.agent.get_agent_metadata()).decode())

    def hear_notes(self, peer):
        """The requests of which the peer says by NIXL that they are done."""
        for name, notes in self.agent.get_new_notifs().items():
            self.notes.setdefault(name, []).extend(notes)
        return [int(note) for note in self.notes.pop(peer, [])]

    def numbers(self, blocks):
        """Of the descriptors of these blocks."""
        a = self.args
        return (np.arange(a.regions)[:, None] * a.blocks +
                np.array(blocks)).reshape(-1).astype("i4")


class Peer:
    """The other side of a connection, as either side has it."""

    def __init__(self, own, channel):
        self.own, self.channel = own, channel
        self.name = None
        self.requests = {}
        own.introduce(channel)

    def meet(self, word):
        a = self.own.args
        if word["shape"] != [a.regions, a.block, a.blocks]:
            raise SystemExit(f"kv_agent: the peer has another SHAPE: {word['shape']}")
        self.own.agent.add_remote_agent(base64.b64decode(word["metadata"]))
        self.name = word["name"]
        self.theirs = self.own.agent.prep_xfer_dlist(
            word["name"], self.own.descs(word["at"]))

    def start(self, way, here, there, request):
        handle = self.own.agent.make_prepped_xfer(
            way, self.own.own, self.own.numbers(here), self.theirs,
            self.own.numbers(there), str(request).encode())
        try:
            self.own.agent.transfer(handle)
        except Exception as error:
            self.own.agent.release_xfer_handle(handle)
            raise Gone(error) from None
        return handle

    def is_done(self, handle):
        try:
            state = self.own.agent.check_xfer_state(handle)
        except Exception as error:
            raise Gone(error) from None
        if state == "PROC":
            return False
        if state != "DONE":
            raise Gone(state)
        self.own.agent.release_xfer_handle(handle)
        return True

    def leave(self):
        self.channel.sock.close()
        if self.name:
            self.own.agent.release_dlist_handle(self.theirs)
            self.own.agent.remove_remote_agent(self.name)


class Prefill(Peer):
    """A decode server, as prefill sees it; requests: blocks, and a handle or None."""

    def look(self):
        own = self.own
        for word in self.channel.hear():
            if not self.name:
                self.meet(word)
                continue
            blocks = own.cache.take(own.args.take)
            if blocks is None:
                self.channel.say(full=word["request"])
                continue
            own.cache.fill(word["request"], blocks)
            if "push" in word:
                handle = self.start("WRITE", blocks, word["push"], word["request"])
            else:
                handle = None
                self.channel.say(ready=word["request"], blocks=blocks)
            self.requests[word["request"]] = blocks, handle
        done = [request for request, (_, handle) in self.requests.items()
                if handle and self.is_done(handle)]
        if self.name:
            done += own.hear_notes(self.name)
        for request in done:
            own.cache.give_back(self.requests.pop(request)[0])

    def leave(self):
        for blocks, handle in self.requests.values():
            if handle:
                self.own.agent.release_xfer_handle(handle)
            # it may be read still, but no result of that is used
            self.own.cache.give_back(blocks)
        super().leave()


def leave(*_):
    raise SystemExit(0)


def prefill(args):
    own = Agent(args)
    signal.signal(signal.SIGTERM, leave)
    with socket.create_server(("", args.port)) as listener:
        listener.setblocking(False)
        print(f"prefill: {own.name} on port {args.port}", flush=True)
        peers = []
        while True:
            try:
                peers.append(Prefill(own, Channel(listener.accept()[0])))
            except BlockingIOError:
                pass
            for peer in peers[:]:
                try:
                    peer.look()
                except Gone as why:
                    print(f"prefill: {peer.name} has gone: {why}", flush=True)
                    peer.leave()
                    peers.remove(peer)
            time.sleep(0.0002)


class Decode(Peer):
    """A prefill server, as decode sees it; requests: blocks, handle, since when."""

    def ask(self, request):
        cache = self.own.cache
        blocks = cache.take(self.own.args.take)
        if blocks is None:
            return False
        cache.forget(blocks)
        self.requests[request] = [blocks, None, time.monotonic()]
        push = {"push": blocks} if self.own.args.push else {}
        self.channel.say(request=request, **push)
        return True

    def look(self):
        """What has arrived, with the seconds each took, and what to ask again."""
        arrived, again = [], []
        for word in self.channel.hear():
            if not self.name:
                self.meet(word)
            elif "full" in word:
                self.own.cache.give_back(self.requests.pop(word["full"])[0])
                again.append(word["full"])
            else:
                mine = self.requests[word["ready"]]
                mine[2] = time.monotonic()
                mine[1] = self.start("READ", mine[0], word["blocks"], word["ready"])
        if self.name and self.own.args.push:
            arrived = self.own.hear_notes(self.name)
        arrived += [request for request, (_, handle, _) in self.requests.items()
                    if handle and self.is_done(handle)]
        now = time.monotonic()
        return [(request, self.requests[request][0], now - self.requests[request][2])
                for request in arrived], again

    def leave(self):
        """Returns the requests that it owes."""
        for blocks, handle, _ in self.requests.values():
            if handle:
                self.own.agent.release_xfer_handle(handle)
            self.own.cache.give_back(blocks, may_be_written=True)
        super().leave()
        return list(self.requests)


class Clients:
    """All prefill servers that decode was given, reached or not."""

    def __init__(self, own):
        self.own = own
        self.peers = {}
        self.next_try = {}
        self.lost = 0  # of those that were met

    @property
    def met(self):
        return self.lost + sum(peer.name is not None
                               for peer in self.peers.values())

    def reach(self):
        for where in self.own.args.hosts:
            if where in self.peers or \
                    time.monotonic() < self.next_try.get(where, 0):
                continue
            host, _, port = where.partition(":")
            self.next_try[where] = time.monotonic() + RETRY_S
            try:
                sock = socket.create_connection((host, int(port or PORT)), 0.2)
                self.peers[where] = Decode(self.own, Channel(sock))
            except (OSError, Gone):
                continue

    def under_way(self):
        return sum(len(peer.requests) for peer in self.peers.values())

    def idlest(self):
        ready = [peer for peer in self.peers.values() if peer.name]
        return min(ready, key=lambda peer: len(peer.requests), default=None)

    def lose(self, where, why):
        peer = self.peers.pop(where)
        print(f"decode: {where} ({peer.name}) has gone: {why}", flush=True)
        self.lost += peer.name is not None  # one that ends may still listen
        return peer.leave()


class Requests:
    """Which to ask next, and what has come of them."""

    def __init__(self, args):
        self.args = args
        self.size = args.take * args.regions * args.block
        self.again, self.last = [], 0
        self.arrived = self.asked_again = self.wrong = 0
        self.seconds = 0.0
        self.by_server = {}
        self.stop = False
        signal.signal(signal.SIGTERM, self.end)
        signal.signal(signal.SIGINT, self.end)

    def end(self, *_):
        self.stop = True

    def next(self):
        """None: there is no more."""
        if self.stop:
            return None
        if self.again:
            return self.again.pop(0)
        if self.args.requests and self.last == self.args.requests:
            return None
        self.last += 1
        return self.last

    def take(self, server, right, request, took):
        self.arrived += 1
        self.seconds += took
        self.by_server[server] = self.by_server.get(server, 0) + 1
        if not right:
            self.wrong += 1
            print(f"decode: request {request}: wrong data", flush=True)

    def told(self, clients):
        return json.dumps({
            "requests": self.arrived, "asked_again": self.asked_again,
            "wrong": self.wrong, "bytes": self.arrived * self.size,
            # as vLLM's "KV Transfer metrics" have it
            "mb_per_s": round(self.arrived * self.size /
                              max(self.seconds, 1e-9) / 1e6),
            "met": clients.met, "lost": clients.lost,
            "by_server": self.by_server})


def ask_more(requests, clients):
    while clients.under_way() < requests.args.at_once:
        peer = clients.idlest()
        request = requests.next() if peer else None
        if request is None:
            return
        try:
            asked = peer.ask(request)
        except Gone:
            return  # it owes the request: look_at() asks another one
        if not asked:
            requests.again.append(request)
            return


def look_at(where, peer, requests, clients):
    """Returns whether something came."""
    try:
        arrived, again = peer.look()
    except Gone as why:
        again = clients.lose(where, why)
        requests.asked_again += len(again)
        arrived = []
    requests.again += again
    for request, blocks, took in arrived:
        requests.take(where, clients.own.cache.is_right(request, blocks),
                      request, took)
        clients.own.cache.give_back(blocks)
        del peer.requests[request]
    return bool(arrived)


def decode(args):
    clients = Clients(Agent(args))
    requests = Requests(args)
    say_at = time.monotonic()
    while True:
        clients.reach()
        ask_more(requests, clients)
        came = [look_at(where, peer, requests, clients)
                for where, peer in list(clients.peers.items())]
        if not any(came):
            time.sleep(0.0002)  # as a server has other things to do
        if time.monotonic() > say_at:
            say_at = time.monotonic() + 1
            print(f"decode: {requests.arrived} requests, "
                  f"{len(clients.peers)} servers", flush=True)
        if not clients.under_way() and (
                requests.stop or 0 < args.requests == requests.arrived):
            print(requests.told(clients), flush=True)
            return 1 if requests.wrong else 0


def main():
    parser = argparse.ArgumentParser(usage=__doc__.split("usage:")[1])
    parser.add_argument("role", choices=("prefill", "decode"))
    parser.add_argument("hosts", nargs="*")
    parser.add_argument("--port", type=int, default=PORT)
    parser.add_argument("--requests", type=int, default=100)
    parser.add_argument("--at-once", type=int, default=4)
    parser.add_argument("--push", action="store_true")
    parser.add_argument("--regions", type=int, default=64)
    parser.add_argument("--block", type=int, default=32 << 10)
    parser.add_argument("--blocks", type=int, default=512)
    parser.add_argument("--take", type=int, default=32)
    parser.add_argument("--memory", choices=("host", "cuda"), default="host")
    args = parser.parse_intermixed_args()
    if bool(args.hosts) != (args.role == "decode"):
        parser.error("decode takes the hosts of prefill servers, prefill none")
    return decode(args) if args.role == "decode" else prefill(args)


if __name__ == "__main__":
    status = 1
    try:
        status = main()
    except SystemExit as end:
        status = end.code
        if isinstance(status, str):
            print(status, file=sys.stderr)
            status = 1
    except BaseException:
        traceback.print_exc()
    # without destructors: libnl-route in NIXL 1.5.1's wheel crashes in exit()
    sys.stdout.flush()
    os._exit(status)
