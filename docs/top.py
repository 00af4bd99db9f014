# SPDX-License-Identifier: BSD-3-Clause
"""
docs/top.png: what `weft top` shows of a Dask cluster, of NIXL's agents
(examples/kv_agent.py) and of two ranks over NCCL, each process in a pod of its own;
the pods share a run folder, and one worker has a UCX_TLS of its own.

    top.py record FOLDER [ARCHIVE...]   as root
    top.py draw FOLDER                  anywhere, afterwards

The first one needs two GPUs and a python3 with torch; without, NIXL's agents have
memory of the host, and there are no ranks.  ARCHIVE: dask.tar.xz and nixl.tar.xz of
tests/gpu/carry.sh; without, it is for a build folder and the tests' Python, that of
tests/tools/venv.sh.  It writes top.tty, what a terminal gets, top.txt and top.json,
what `weft status` says, and top.log.

The other one draws top.tty.  A terminal emulator (pyte) and what draws its screen
(Pillow) are installed by pip into a folder that is gone afterwards.
"""
import contextlib
import fcntl
import glob
import os
import pty
import select
import struct
import subprocess
import sys
import tempfile
import termios
import time
import traceback

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.dirname(HERE)
sys.path[:0] = [f"{ROOT}/tests/e2e", f"{ROOT}/tests/gpu/nccl"]

COLUMNS, ROWS = 110, 60
SECONDS = 12  # of looking
SIZE, PAD = 15, 12  # of a letter, and around the screen, in pixels
FONT = "mpl-data/fonts/ttf/DejaVuSansMono.ttf"
PAPER, INK = "#1d1f21", "#d8dad6"
SHAPE = ["--regions", "16", "--block", "32768", "--blocks", "256"]
NODES = glob.glob("/dev/nvidia[0-9]*")


# ---- in the pods -------------------------------------------------------------

class Pod:
    """Each has a cable to the namespace of this script, which forwards."""

    def __init__(self, number, name):
        self.number, self.name = str(number), name
        self.address = f"10.78.{number}.2"

    def command(self, argv):
        return [sys.executable, __file__, "pod", self.number, self.name, *argv]


def pod(number, name, *command):
    import pod_net
    pod_net.enter("pod" + number, "eth0", number)
    pod_net.set_gateway(pod_net.HERE % number)
    os.execvp("sh", ["sh", f"{ROOT}/tests/gpu/pod.sh", name, *command])


def rank(number, meet):
    """A plain program of torch's, which knows nothing of weft."""
    import torch
    import torch.distributed as dist
    torch.cuda.set_device(int(number))
    dist.init_process_group("nccl", init_method=f"file://{meet}",
                            rank=int(number), world_size=2)
    mine = torch.full((16 << 20,), int(number) + 1.0, device="cuda")
    began = time.monotonic()
    for turn in range(1 << 30):
        data = mine + turn % 1000
        dist.all_reduce(data)
        if turn % 100 == 0:
            wrong = int((data != 3 + 2 * (turn % 1000)).sum())
            took, began = time.monotonic() - began, time.monotonic()
            print(f"all_reduce {turn}: {wrong} wrong, {took:.3f} s for 100 of "
                  "64 MiB", flush=True)


# ---- the record --------------------------------------------------------------

class Scene:
    def __init__(self, folder, site, stack):
        self.folder, self.site = folder, site
        self.stack, self.processes = stack, []
        self.run = f"{folder}/run"
        os.mkdir(self.run)
        from lib.cluster import FOREIGN, weft_command
        self.weft = weft_command()
        # of the caller's set-up what is not of these
        self.env = {name: value for name, value in os.environ.items()
                    if not name.startswith(FOREIGN)}
        self.env["WEFT_RUN_DIR"] = self.run
        names = ("scheduler", "worker1", "worker2", "client", "prefill",
                 "decode", "rank0", "rank1")
        self.pods = [Pod(i, name) for i, name in enumerate(names, 1)]

    def start(self, pod, argv, **env):
        from lib.cluster import Process
        process = Process(pod.name, argv, {**self.env, **env},
                          f"{self.folder}/{pod.name}.log", pod)
        self.processes.append(process)
        return process

    def modules(self, *folders):
        return os.pathsep.join(filter(None, (
            *folders, self.env.get("PYTHONPATH"))))

    def dask(self):
        from lib.cluster import Cluster
        from test_nixl import await_words
        scheduler, worker, other, client = self.pods[:4]
        cluster = Cluster("weft", "ucxx", [scheduler, worker, other], {
            "WEFT_RUN_DIR": self.run, "UCX_TLS": "weft_shm,weft_tcp",
            "PYTHONPATH": self.modules(self.site),
            "DASK_DISTRIBUTED__DIAGNOSTICS__NVML": "False"})
        self.processes = cluster.processes
        self.stack.enter_context(cluster)
        cluster.worker()
        cluster.worker(env={"UCX_TLS": "weft_tcp"})
        program = cluster.client(f"{ROOT}/examples/demo.py", 4000, 1000,
                                 100000, host=client)
        await_words(program, '"times"', seconds=60)

    def nixl(self):
        from test_nixl import await_words, nixl
        prefill, decode = self.pods[4:6]
        tls, memory = "weft_shm,weft_tcp", "host"
        if len(NODES) > 1:
            tls, memory = f"weft_nvl,{tls},cuda_copy", "cuda"

        def agent(gpu, pod, *args):
            return self.start(pod, [
                self.weft, "run", sys.executable,
                f"{ROOT}/examples/kv_agent.py", *args, *SHAPE, "--memory",
                memory], PYTHONPATH=self.modules(nixl()), UCX_TLS=tls,
                CUDA_VISIBLE_DEVICES=str(gpu))
        await_words(agent(0, prefill, "prefill"), " on port ", seconds=40)
        await_words(agent(1, decode, "decode", prefill.address, "--requests",
                          "0"), r"decode: [1-9]\d* requests", seconds=40)

    def nccl(self):
        from test_nixl import await_words
        if len(NODES) < 2:
            print("fewer than two GPUs: no ranks, no memory of GPUs")
            return
        plugin = subprocess.run([self.weft, "path", "nccl"], check=True,
                                capture_output=True, text=True).stdout.strip()
        ranks = [self.start(pod, [sys.executable, __file__, "rank", str(number),
                                  f"{self.folder}/meet"],
                            NCCL_NET_PLUGIN=plugin, NCCL_DEBUG="WARN",
                            # multicast can hang hosts whose GPUs are shared
                            NCCL_NVLS_ENABLE="0", NCCL_SOCKET_FAMILY="AF_INET")
                 for number, pod in enumerate(self.pods[6:])]
        for process in ranks:
            await_words(process, "all_reduce 200: 0 wrong", seconds=60)
        print(ranks[0].output().splitlines()[-1])

    def look(self):
        """What a terminal gets of weft top."""
        pid, terminal = pty.fork()
        if not pid:
            os.execve(self.weft, ["weft", "top"], {**self.env, "TERM": "xterm"})
        fcntl.ioctl(terminal, termios.TIOCSWINSZ,
                    struct.pack("HHHH", ROWS, COLUMNS, 0, 0))
        end, said = time.monotonic() + SECONDS, b""
        while time.monotonic() < end:
            if select.select([terminal], [], [], 0.1)[0]:
                said += os.read(terminal, 65536)
        shown = said  # what comes after q is the former screen
        os.write(terminal, b"q")
        os.waitpid(pid, 0)
        os.close(terminal)
        return shown

    def status(self, *args):
        return subprocess.run([self.weft, "status", *args], env=self.env,
                              check=True, capture_output=True).stdout

    def end(self, out):
        """Each gets SIGKILL: as the first process of its pod none has another."""
        with open(f"{out}/top.log", "w") as log:
            for process in self.processes:
                log.write(f"--- {process.name}, status "
                          f"{process.popen.poll()}\n")
                with contextlib.suppress(OSError):
                    log.write(process.output() + "\n")
        for process in self.processes:
            process.kill()


def unpack(archives, to):
    """As the modules of the tests expect it; where Dask is."""
    for archive in archives:
        subprocess.run([sys.executable, "-m", "tarfile", "-e", archive, to],
                       check=True, stderr=subprocess.DEVNULL)
    os.environ.update(E2E_WEFT=f"{to}/bin/weft", WEFT_CACHE=to)
    return f"{to}/site"


def forward():
    """In a network namespace of its own, between the pods."""
    import pod_net
    pod_net.namespace("unshare", pod_net.CLONE_NEWNET)
    pod_net.set_up("lo")
    with open("/proc/sys/net/ipv4/ip_forward", "w") as file:
        file.write("1\n")


def record(out, *archives):
    failed = False
    os.makedirs(out, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="weft-top.") as folder, \
            contextlib.ExitStack() as stack:
        site = unpack(archives, f"{folder}/kit") if archives else None
        os.environ.setdefault("E2E_WEFT", os.path.abspath("tools/weft"))
        forward()
        scene = Scene(folder, site, stack)
        try:
            for start in (scene.dask, scene.nixl, scene.nccl):
                began = time.monotonic()
                try:
                    start()
                except Exception:
                    failed = True
                    traceback.print_exc()
                print(f"{start.__name__}: {time.monotonic() - began:.0f} s",
                      flush=True)
            for name, see in (("txt", scene.status),
                              ("json", lambda: scene.status("--json")),
                              ("tty", scene.look)):
                with open(f"{out}/top.{name}", "wb") as file:
                    file.write(see())
        finally:
            scene.end(out)
    with open(f"{out}/top.txt") as file:
        print(file.read())
    return failed


# ---- the picture -------------------------------------------------------------

def draw(folder):
    with tempfile.TemporaryDirectory(prefix="weft-top.") as tools:
        subprocess.run([sys.executable, "-m", "pip", "install", "-q", "--target",
                        tools, "pyte", "pillow", "matplotlib"], check=True)
        sys.path.insert(0, tools)
        with open(f"{folder}/top.tty", "rb") as file:
            draw_screen(file.read(), f"{tools}/matplotlib/{FONT}")


def draw_screen(said, typeface):
    import pyte
    from PIL import Image, ImageDraw, ImageFont
    screen = pyte.Screen(COLUMNS, ROWS)
    pyte.ByteStream(screen).feed(said)
    lines = [line.rstrip() for line in screen.display]
    while not lines[-1]:
        lines.pop()
    font = ImageFont.truetype(typeface, SIZE)
    width, height = font.getlength("x"), SIZE + 4
    columns = max(len(line) for line in lines)
    image = Image.new("RGB", (int(columns * width) + 2 * PAD,
                              len(lines) * height + 2 * PAD), PAPER)
    pen = ImageDraw.Draw(image)
    for number, line in enumerate(lines):
        for column, letter in enumerate(line):
            pen.text((PAD + column * width, PAD + number * height), letter,
                     INK, font)
    image.quantize(16).save(f"{HERE}/top.png", optimize=True)
    print("\n".join(lines))


if __name__ == "__main__":
    programs = {"record": record, "draw": draw, "pod": pod, "rank": rank}
    if len(sys.argv) < 3 or sys.argv[1] not in programs:
        sys.exit(__doc__)
    sys.exit(programs[sys.argv[1]](*sys.argv[2:]))
