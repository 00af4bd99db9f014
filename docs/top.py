# SPDX-License-Identifier: BSD-3-Clause
"""
Draws docs/top.png: what `weft top` shows of a Dask cluster and of NIXL's agents
(examples/kv_agent.py), each process in a pod of its own, which share a run folder;
one worker has a UCX_TLS of its own. As root, in a build folder, by the tests' Python:

    "$(bash ../tests/tools/venv.sh)/bin/python" ../docs/top.py [SECONDS]

A terminal emulator (pyte) and what draws its screen (Pillow) are installed by pip
into a folder that is gone afterwards.
"""
import fcntl
import os
import pty
import select
import struct
import subprocess
import sys
import tempfile
import termios
import time

HERE = os.path.dirname(os.path.abspath(__file__))
os.environ.setdefault("E2E_WEFT", os.path.abspath("tools/weft"))
sys.path.insert(0, f"{HERE}/../tests/e2e")

from lib.cluster import Cluster, Process, weft_command  # noqa: E402
from lib.netns import Network  # noqa: E402
from test_nixl import nixl  # noqa: E402

COLUMNS, ROWS = 100, 44
SIZE, PAD = 15, 12  # of a letter, and around the screen, in pixels
FONT = "mpl-data/fonts/ttf/DejaVuSansMono.ttf"
PAPER, INK = "#1d1f21", "#d8dad6"


def look(env, seconds):
    """What a terminal gets of weft top."""
    pid, terminal = pty.fork()
    if not pid:
        os.execve(weft_command(), ["weft", "top"], {**env, "TERM": "xterm"})
    fcntl.ioctl(terminal, termios.TIOCSWINSZ,
                struct.pack("HHHH", ROWS, COLUMNS, 0, 0))
    end, said = time.monotonic() + seconds, b""
    while time.monotonic() < end:
        if select.select([terminal], [], [], 0.1)[0]:
            said += os.read(terminal, 65536)
    shown = said  # what comes after q is the former screen
    os.write(terminal, b"q")
    os.waitpid(pid, 0)
    os.close(terminal)
    return shown


def draw(said, tools, path):
    import pyte
    from PIL import Image, ImageDraw, ImageFont
    screen = pyte.Screen(COLUMNS, ROWS)
    pyte.ByteStream(screen).feed(said)
    lines = [line.rstrip() for line in screen.display]
    while not lines[-1]:
        lines.pop()
    font = ImageFont.truetype(f"{tools}/matplotlib/{FONT}", SIZE)
    width, height = font.getlength("x"), SIZE + 4
    columns = max(len(line) for line in lines)
    image = Image.new("RGB", (int(columns * width) + 2 * PAD,
                              len(lines) * height + 2 * PAD), PAPER)
    pen = ImageDraw.Draw(image)
    for number, line in enumerate(lines):
        for column, letter in enumerate(line):
            pen.text((PAD + column * width, PAD + number * height), letter,
                     INK, font)
    image.quantize(16).save(path, optimize=True)
    print("\n".join(lines))


def main():
    seconds = float(sys.argv[1]) if len(sys.argv) > 1 else 12
    shape = ["--regions", "16", "--block", "32768", "--blocks", "256"]
    with tempfile.TemporaryDirectory(prefix="weft-top.") as folder, \
            Network(5) as net:
        tools = f"{folder}/tools"
        subprocess.run([sys.executable, "-m", "pip", "install", "-q", "--target",
                        tools, "pyte", "pillow", "matplotlib"], check=True)
        sys.path.insert(0, tools)
        env = {"WEFT_RUN_DIR": folder, "UCX_TLS": "weft_shm,weft_tcp"}
        full = {**os.environ, **env}
        agents = []

        def agent(host, *args):
            agents.append(Process(
                f"kv{host}", [weft_command(), "run", sys.executable,
                              f"{HERE}/../examples/kv_agent.py", *args, *shape],
                {**full, "PYTHONPATH": nixl()}, f"{folder}/kv{host}.log",
                net.hosts[host]))
        with Cluster("weft", "ucxx", net.hosts[:3], env) as cluster:
            cluster.worker()
            cluster.worker(env={"UCX_TLS": "weft_tcp"})
            agent(3, "prefill")
            agent(4, "decode", net.hosts[3].address, "--requests", "0")
            cluster.client(f"{HERE}/../examples/demo.py", 4000, 1000, 100000)
            said = look(full, seconds)
            for process in agents:
                process.stop()
            # it would go on
            cluster.processes[-1].kill()
        draw(said, tools, f"{HERE}/top.png")


if __name__ == "__main__":
    main()
