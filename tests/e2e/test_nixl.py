# SPDX-License-Identifier: BSD-3-Clause
"""
NIXL, whose wheel has a UCX of its own (1.23), moves blocks of memory between two
pods: one agent in each of two network namespaces, every byte checked.

With E2E_POD, a path of tests/gpu/pod, the pods of the tests with GPUs are its own,
and without E2E_FAKE_CUDA the GPUs are real: bench/gpu/nixl.sh.
"""
import contextlib
import glob
import os
import re
import signal
import subprocess
import sys
import tempfile
import time

from lib import counters
from lib.cluster import Process, weft_command
from lib.netns import Network, ip
from lib.program import clean_env, last_json, run
from lib.tap import Skip, check, main, test

HERE = os.path.dirname(os.path.abspath(__file__))
KV = f"{HERE}/programs/kv.py"
AGENT = os.path.abspath(f"{HERE}/../../examples/kv_agent.py")
TWO_UCX = f"{HERE}/programs/two_ucx.py"
ROLES = ("target", "initiator")
BUILD = os.path.dirname(os.path.dirname(os.environ["E2E_WEFT"]))
POD = os.environ.get("E2E_POD")


def nixl():
    """The folder of the wheel, fetched for the tests of UCX."""
    cache = os.environ.get("WEFT_CACHE", os.path.expanduser("~/.cache/weft"))
    found = sorted(glob.glob(f"{cache}/ucx/1.23*/nixl"))
    if not found:
        raise Skip("no NIXL in the cache: tests/tools/fetch-ucx.sh")
    version = f"cpython-{sys.version_info[0]}{sys.version_info[1]}-"
    if not glob.glob(f"{found[-1]}/nixl_cu*/_bindings.{version}*"):
        raise Skip(f"the NIXL in the cache is not for this Python ({version})")
    return found[-1]


# Both in this network namespace, with the fake adapter in libibverbs' place.
ADAPTER = ["unshare", "-m", "bash", "-c", f"""
. {HERE}/../lib/verbs.sh
verbs_setup "$KV_FABRIC" 2>/dev/null
LD_LIBRARY_PATH=$verbs exec "$@\"""", "bash"]


class Pair:
    """
    What the two agents said, and weft's counters of each.

    @places: the command that each is started by, in place of network namespaces.
    """

    def __init__(self, jobs, env=None, weft=True, wires=1, seconds=60,
                 dies=None, adapter=False, places=None):
        env = dict(clean_env(env), PYTHONPATH=nixl())
        argv = [sys.executable, KV]
        if weft:
            argv = [weft_command(), "run", *argv]
        network = contextlib.nullcontext() if places else Network(2)
        with tempfile.TemporaryDirectory(prefix="weft-e2e.") as folder, \
                network as net:
            hosts = net.hosts if net else [None, None]
            if wires == 2:
                second_wire(net)
            if adapter:
                env.update(KV_FABRIC=folder, WEFT_BUILD=BUILD)
                argv, hosts = [*ADAPTER, *argv], [None, None]
            pair = []
            for role, host, place in zip(ROLES, hosts, places or [[], []]):
                full = dict(env, WEFT_STATS=f"{folder}/{role}.%p.stats")
                pair.append(Process(role, [*place, *argv, role, folder, *jobs],
                                    full, f"{folder}/{role}.log", host))
            if dies:
                kill(pair[ROLES.index(dies)], folder)
            status = [process.wait(seconds) for process in pair]
            self.said = {p.name: p.output() for p in pair}
            for process in pair:
                process.stop()
            for role, code in zip(ROLES, status):
                wanted = (-9, 137) if role == dies else (0,)
                check(code in wanted, f"{role}: status {code}\n" + "\n".join(
                    f"{name}: {text}" for name, text in self.said.items()))
            self.rows = {role: [row for row in counters.read_dir(folder, role)
                                if row["id"] != row["peer"]]
                         for role in ROLES}

    def total(self, role, name, device="tcp"):
        return counters.total([row for row in self.rows[role]
                               if row["weft"] == device], name)

    def moved(self):
        """Bytes that the initiator wrote and read, by what it said."""
        return {word: sum(int(n) for n in re.findall(
            rf"^{word} \S+ (\d+) ", self.said["initiator"], re.M))
            for word in ("WRITE", "READ")}

    def carried_by(self, device):
        """No byte of a block goes another way, or twice."""
        moved = self.moved()
        check(moved["WRITE"] > 0 and moved["READ"] > 0, "nothing was moved")
        seen = [("initiator", "tx_put_bytes", moved["WRITE"]),
                ("initiator", "get_bytes", moved["READ"])]
        wires = {"initiator": moved["WRITE"], "target": moved["READ"]}
        if device in ("ib", "nvlink"):  # the target has no part in it
            wires["target"] = 0
        else:
            seen += [("target", "rx_put_bytes", moved["WRITE"]),
                     ("target", "tx_get_bytes", moved["READ"])]
        for role, name, want in seen:
            got = self.total(role, name, device)
            check(got == want, f"{role}: {name} {got}, not {want}")
        for role, want in wires.items():
            check(self.total(role, "tx_message_bytes", device) < 65536,
                  f"{role}: in messages: {self.rows[role]}")
            wire = counters.total(self.rows[role], "wire_tx_bytes")
            check(want <= wire <= 1.05 * want + 65536,
                  f"{role}: {wire} bytes on the wire for {want}")
            check(counters.total(self.rows[role], "key_errors") == 0,
                  f"{role}: key errors")


def kill(process, folder):
    """When the other agent asks for it, and tells it then."""
    end = time.monotonic() + 60
    while not os.path.exists(f"{folder}/kill") and process.alive() and \
            time.monotonic() < end:
        time.sleep(0.001)
    process.kill()
    with open(f"{folder}/killed", "w"):
        pass


def second_wire(net):
    a, b = net.hosts
    ip("link", "add", "eth1", "netns", a.name, "type", "veth",
       "peer", "name", "eth1", "netns", b.name)
    for number, host in enumerate(net.hosts, 1):
        ip("-n", host.name, "address", "add", f"10.78.0.{number}/24",
           "dev", "eth1")
        ip("-n", host.name, "link", "set", "eth1", "up")
    # an interface that is not up yet is no rail
    end = time.monotonic() + 10
    for host in net.hosts:
        while '"UP"' not in ip("-n", host.name, "-j", "link", "show", "eth1") \
                .split("operstate")[1][:10]:
            check(time.monotonic() < end, "eth1 does not come up")
            time.sleep(0.01)


def times(pair):
    return "; ".join(re.findall(r"^(?:WRITE|READ) .*", pair.said["initiator"],
                                re.M))


@test(100)
def ten_thousand_blocks_and_a_large_one():
    pair = Pair(["10000:mix", "1:64m"])
    pair.carried_by("tcp")
    return times(pair)


@test(100)
def between_pods_with_a_folder_in_common():
    with tempfile.TemporaryDirectory(prefix="weft-e2e.") as folder:
        pair = Pair(["2000:mix", "1:64m"],
                    {"UCX_TLS": "weft_shm,weft_tcp", "WEFT_RUN_DIR": folder})
    pair.carried_by("shm")
    return times(pair)


@test(600, only_long=True)
def ten_thousand_blocks_of_each_size_and_a_gigabyte():
    pair = Pair([f"10000:{size}k" for size in (1, 4, 16, 45, 64)] + ["1:1g"],
                seconds=500)
    pair.carried_by("tcp")
    return times(pair)


@test(100)
def over_two_interfaces():
    """NIXL asks for two rails (MAX_RMA_RAILS)."""
    pair = Pair(["20:16m"], {"UCX_NET_DEVICES": "eth0,eth1"}, wires=2)
    pair.carried_by("tcp")
    moved = sum(pair.moved().values())
    for netdev in ("eth0", "eth1"):
        rows = [r for r in pair.rows["initiator"] if r["netdev"] == netdev]
        part = counters.total(rows, "tx_put_bytes", "get_bytes")
        check(moved / 4 <= part <= moved * 3 / 4, f"{part} by {netdev}")


@test(100)
def without_preload_in_a_scope_of_its_own():
    """RTLD_DEEPBIND hides UCX from a preload; it finds the plugin itself."""
    plugin = os.path.dirname(os.environ["E2E_PLUGIN"])
    Pair(["100:64k"], {"NIXL_UCX_DEEPBIND": "y", "UCX_TLS": "weft_tcp",
                       "UCX_PLUGIN_PATH": plugin},
         weft=False).carried_by("tcp")


@contextlib.contextmanager
def gpus():
    """How agents move GPU memory by weft_nvl: of a fake driver, or of real ones."""
    fake = os.environ.get("E2E_FAKE_CUDA")
    if not POD and not os.path.exists(fake):
        raise Skip("the fake driver is not built: make check-programs")
    with tempfile.TemporaryDirectory(prefix="weft-e2e.") as folder:
        env = {"KV_MEMORY": "cuda", "WEFT_RUN_DIR": folder,
               "UCX_TLS": "weft_nvl,weft_shm,weft_tcp,cuda_copy"}
        if fake:
            for name in ("libcuda.so.1", "libnvidia-ml.so.1"):
                os.symlink(fake, f"{folder}/{name}")
            os.mkdir(f"{folder}/ipc")
            env.update(LD_LIBRARY_PATH=folder, UCX_MEMTYPE_CACHE="n",
                       WEFT_TEST_CUDA_IPC=f"{folder}/ipc",
                       WEFT_LIBCUDA=f"{folder}/libcuda.so.1")
        yield {"env": env, "places": POD and [[POD, "a"], [POD, "b"]]}


@test(100)
def gpu_memory_between_pods():
    with gpus() as how:
        pair = Pair(["10000:mix", "1:1g"] if POD else ["500:mix", "1:4m"],
                    **how)
    pair.carried_by("nvlink")
    return times(pair)


def gpu_mishap(mishap, env=None, **more):
    """As with host memory below; real GPUs are too fast for small blocks."""
    with gpus() as how:
        how["env"].update(env or {})
        size = "2000:512k" if POD else "500:64k"
        return Pair([f"{mishap}={size}"], **how, **more)


@test(100)
def gpu_memory_of_who_sleeps():
    gpu_mishap("asleep")


@test(100)
def gpu_memory_of_a_killed_target():
    said = gpu_mishap("killed_target", dies="target").said["initiator"]
    check("error: NIXL_ERR_REMOTE_DISCONNECT" in said, said)


@test(100)
def gpu_memory_and_a_killed_initiator():
    gpu_mishap("killed_initiator", {"UCX_RCACHE_ENABLE": "n"},
               dies="initiator")


@test(100)
def gpu_memory_of_a_cancelled_read():
    gpu_mishap("cancelled")


@test(100)
def gpu_memory_that_is_taken_back():
    pair = gpu_mishap("revoked", {"UCX_RCACHE_ENABLE": "n"})
    # the put that the key does not allow any more says so itself
    check("error: NIXL_ERR_" in pair.said["initiator"], pair.said)
    check(pair.total("initiator", "key_errors", "nvlink") > 0,
          "no key error was counted")


@test(100)
def over_the_adapters_that_nixl_names():
    """By weft_ib, on a fake adapter of two ports (NIXL's device_list)."""
    if not os.path.exists(f"{BUILD}/tests/lib/.libs/libfake_verbs.so"):
        raise Skip("the fake adapter is not built: make check-programs")
    if subprocess.run(["unshare", "-m", "true"], capture_output=True).returncode:
        raise Skip("no mount namespace to be had here")
    for devices, part in (("fake1", (0, 0)), ("fake0, fake1", (0.25, 0.75))):
        pair = Pair(["1000:mix", "20:4m"], {"KV_DEVICES": devices,
                                            "UCX_TLS": "weft_ib"},
                    adapter=True)
        pair.carried_by("ib")
        moved = sum(pair.moved().values())
        rows = [row for row in pair.rows["initiator"]
                if row["netdev"] == "fake0:1"]
        got = counters.total(rows, "tx_put_bytes", "get_bytes")
        check(part[0] * moved <= got <= part[1] * moved,
              f"{devices}: {got} of {moved} by the first port")


@test(100)
def beside_ucxx_in_one_process():
    """Two copies of UCX, 1.21 and 1.23: each carries by weft what is its own."""
    size = 10000000
    output, rows = run([sys.executable, TWO_UCX, str(size)],
                       {"PYTHONPATH": nixl(), "UCX_TLS": "weft_tcp"})
    check("2 copies" in output, output)
    got = counters.total(rows, "rx_put_bytes", "get_bytes")
    check(got == 3 * size, f"{got} bytes, not {3 * size}")


@test(100)
def nixls_thread_serves_who_sleeps():
    """READ and WRITE of an agent whose program calls NIXL no more."""
    Pair(["asleep"])


@test(100)
def a_killed_target_is_an_error():
    said = Pair(["killed_target"], dies="target").said["initiator"]
    check("error: NIXL_ERR_REMOTE_DISCONNECT" in said, said)


@test(100)
def nothing_lands_of_a_killed_initiator():
    """Without UCX's cache: what the wire still holds would land."""
    Pair(["killed_initiator"], {"UCX_RCACHE_ENABLE": "n"}, dies="initiator")


@test(100)
def nothing_wrong_lands_of_a_cancelled_read():
    Pair(["cancelled"])


@test(100)
def nothing_lands_in_memory_that_is_taken_back():
    """Without UCX's cache, which keeps memory registered after its release."""
    pair = Pair(["revoked"], {"UCX_RCACHE_ENABLE": "n"})
    check("error: NIXL_ERR_REMOTE_DISCONNECT" in pair.said["initiator"],
          pair.said)
    check(pair.total("target", "key_errors") > 0, "no key error was counted")


class Servers:
    """
    Three pods with a network each, of which any may be down, as in
    docs/recipes/nixl.md: in two of them and in the third

    weft run python examples/kv_agent.py prefill
    weft run python examples/kv_agent.py decode $PREFILL_A $PREFILL_B
    """
    SHAPE = ["--regions", "4", "--block", "16384", "--blocks", "512",
             "--take", "16"]

    def __init__(self, net, folder, env=None):
        self.hosts, self.folder = net.hosts, folder
        self.env = dict(clean_env(), PYTHONPATH=nixl(), **env or {})
        self.count = 0

    def start(self, host, *args):
        self.count += 1
        name = f"{self.count}-{args[0]}"
        return Process(name, [weft_command(), "run", sys.executable, AGENT,
                              *args, *self.SHAPE],
                       dict(self.env,
                            WEFT_STATS=f"{self.folder}/{name}.%p.stats"),
                       f"{self.folder}/{name}.log", self.hosts[host])

    def prefill(self, host):
        server = self.start(host, "prefill")
        await_words(server, " on port ")
        return server

    def decode(self, *args):
        return self.start(2, "decode", "--requests", "0", *args,
                          *[host.address for host in self.hosts[:2]])

    def rows(self, process):
        return [row for row in counters.read_dir(self.folder, process.name)
                if row["id"] != row["peer"]]


def await_words(process, pattern, since=0, seconds=30, others=()):
    """
    Until the process says them behind @since; returns where they end.  What the
    others said explains why not.
    """
    end = time.monotonic() + seconds
    while True:
        found = re.compile(pattern).search(process.output(), since)
        if found:
            return found.end()
        check(process.alive() and time.monotonic() < end,
              f"{process.name} does not say '{pattern}':\n{process.output()}" +
              "".join(f"\n{other.name}, status {other.popen.poll()}:\n"
                      f"{other.output()}" for other in others))
        time.sleep(0.02)


def restarts_under_load(device, *push):
    """
    A prefill server joins late, one is killed and comes again, so does decode; all
    while requests are under way, of which each arrives as it should.
    """
    with tempfile.TemporaryDirectory(prefix="weft-e2e.") as folder, \
            Network(3) as net:
        env = {"UCX_TLS": "weft_tcp"} if device == "tcp" else \
            {"UCX_TLS": "weft_shm,weft_tcp", "WEFT_RUN_DIR": folder}
        servers = Servers(net, folder, env)
        first = servers.prefill(0)
        killed = servers.decode(*push)
        await_words(killed, r"decode: [1-9]\d* requests, 1 servers")
        killed.kill()
        await_words(first, "decode-.* has gone")
        decode = servers.decode(*push)
        at = await_words(decode, r"decode: [1-9]\d* requests, 1 servers")
        late = servers.prefill(1)
        at = await_words(decode, "requests, 2 servers", at, others=[late])
        first.kill()
        at = await_words(decode, "has gone: .*", at)
        again = servers.prefill(0)
        for _ in range(2):
            at = await_words(decode, "requests, 2 servers", at,
                             others=[late, again])
        check(decode.stop() == 0, decode.output())
        said = decode.output()
        seen = last_json(said)
        rows = servers.rows(decode)
        for process in late, again:
            process.stop()
    check(seen["wrong"] == 0 and seen["met"] == 3 and seen["lost"] == 1 and
          len(seen["by_server"]) == 2, said)
    name = "rx_put_bytes" if push else "get_bytes"
    got = counters.total([row for row in rows if row["weft"] == device], name)
    check(got >= seen["bytes"], f"{got} of {seen['bytes']} bytes over {device}")
    others = counters.total([row for row in rows if row["weft"] != device], name)
    check(others == 0, f"{others} bytes went over another device")
    return f"{seen['requests']} requests, {seen['asked_again']} asked again"


@test(150)
def servers_restart_while_decode_pulls():
    return restarts_under_load("shm")


@test(150)
def servers_restart_while_prefill_pushes():
    return restarts_under_load("shm", "--push")


@test(150, only_long=True)
def servers_restart_while_decode_pulls_over_tcp():
    return restarts_under_load("tcp")


@test(60)
def a_cache_in_memory_of_a_gpu():
    """
    Of the fake driver, or of a real one: pulled and pushed over weft_nvl by agents
    in pods that share the network, to meet, and a folder.
    """
    with gpus() as how, \
            tempfile.TemporaryDirectory(prefix="weft-e2e.") as folder:
        env = dict(clean_env(how["env"]), PYTHONPATH=nixl())
        shape = [*Servers.SHAPE, "--memory", "cuda"]
        pod = ["unshare", "-uimpf", "--mount-proc", "--kill-child"]

        def start(name, *args):
            stats = f"{folder}/{name}.%p.stats"
            return Process(name, [*pod, weft_command(), "run", sys.executable,
                                  AGENT, *args, *shape],
                           dict(env, WEFT_STATS=stats), f"{folder}/{name}.log")
        port = ["--port", "5617"]
        prefill = start("prefill", "prefill", *port)
        await_words(prefill, " on port ")
        for name, *push in ["pull"], ["push", "--push"]:
            decode = start(name, "decode", "127.0.0.1:5617",
                           "--requests", "40", *push)
            check(decode.wait(60) == 0, decode.output())
        with open(f"/proc/{prefill.pid}/task/{prefill.pid}/children") as file:
            os.kill(int(file.read()), signal.SIGTERM)  # unshare waits for it
        check(prefill.wait(30) == 0, prefill.output())
        seen = last_json(decode.output())
        rows = counters.read_dir(folder)
    got = counters.total([row for row in rows if row["weft"] == "nvlink"],
                         "get_bytes", "tx_put_bytes")
    check(got == 2 * seen["bytes"], f"{got}, not {2 * seen['bytes']}")


if __name__ == "__main__":
    main()
