# SPDX-License-Identifier: BSD-3-Clause
"""
The documentation's command blocks that are marked as run, as they stand: each
page in a home, a folder and a network namespace of its own, each block in a
shell of its own. tests/tools/commands.py has the marks.
"""
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time

from lib import counters
from lib.netns import Network, ip
from lib.tap import check, main, test

SOURCE = os.path.abspath(f"{os.path.dirname(os.path.abspath(__file__))}/../..")
BUILD = os.path.dirname(os.path.dirname(os.environ["E2E_WEFT"]))
CACHE = os.environ.get("WEFT_CACHE", os.path.expanduser("~/.cache/weft"))
sys.path.insert(0, f"{SOURCE}/tests/tools")
import commands  # noqa: E402

# What the pages take for granted: the programs of a user.
PROGRAMS = {
    "my_program.py": f"""
import runpy, sys
sys.argv[1:] = ["1000", "1000000"]
runpy.run_path("{SOURCE}/tests/e2e/programs/exchange.py", run_name="__main__")
""",
    "my_dask_program.py": """
import numpy
from distributed import Client
if __name__ == "__main__":
    with Client(scheduler_file="cluster.json") as client:
        data = numpy.arange(1e6)
        sent = client.scatter(data)
        assert (client.submit(lambda x: x + 1, sent).result() == data + 1).all()
        del sent
""",
    "my_ranks.py": f"""
import runpy, sys
sys.argv[1:] = ["."]
runpy.run_path("{SOURCE}/tests/e2e/programs/barriers.py", run_name="__main__")
""",
}
# What each has weft carry, by all receivers together: there and back, in Dask to
# the worker by way of the scheduler.
CARRIED = {
    "my_program.py": (2002001, 1.1 * 2002001),
    "my_dask_program.py": (24e6, 1.1 * 24e6),
    # three messages of 31 bytes for each of 200 barriers
    "my_ranks.py": (200 * 3 * 31, 1.1 * 200 * 3 * 31),
}

# A command that fails ends its block, but what `weft info nccl` answers with 1.
PROLOGUE = """
set -u -o pipefail
trap 'case $?,$BASH_COMMAND in "1,weft info nccl"*) ;; *) exit 1 ;; esac' ERR
"""


class Page:
    def __init__(self, folder, host):
        self.home = f"{folder}/home"
        self.folder = f"{folder}/home/work"
        self.host = host
        os.makedirs(self.folder)

    def install(self):
        prefix = f"{self.home}/.local"
        done = subprocess.run(
            ["make", "-s", "-C", BUILD, "install", "DESTDIR=",
             f"prefix={prefix}", f"exec_prefix={prefix}",
             f"libdir={prefix}/lib", f"datarootdir={prefix}/share"],
            env={**os.environ, "MAKEFLAGS": ""}, capture_output=True,
            text=True)
        check(done.returncode == 0, done.stderr)

    def copy_sources(self):
        """A clone, and a cache that has all but weft itself."""
        listed = subprocess.run(
            ["git", "-c", f"safe.directory={SOURCE}", "ls-files", "-co",
             "--exclude-standard"],
            cwd=SOURCE, capture_output=True, text=True)
        if listed.returncode:  # a release
            shutil.copytree(SOURCE, self.folder, dirs_exist_ok=True)
        for name in listed.stdout.split("\n"):
            if os.path.isfile(f"{SOURCE}/{name}"):
                os.makedirs(f"{self.folder}/{os.path.dirname(name)}",
                            exist_ok=True)
                shutil.copy2(f"{SOURCE}/{name}", f"{self.folder}/{name}")
        os.makedirs(f"{self.home}/.cache/weft")
        for name in os.listdir(CACHE):
            if not name.startswith("build-"):
                os.symlink(f"{CACHE}/{name}",
                           f"{self.home}/.cache/weft/{name}")

    def start(self, script, stats):
        path = ":".join([f"{self.home}/.local/bin", f"{sys.prefix}/bin",
                         os.environ["PATH"]])
        return subprocess.Popen(
            ["ip", "netns", "exec", self.host.name, "env", "-i",
             f"HOME={self.home}", f"PATH={path}", "LC_ALL=C.UTF-8",
             "PYTHONDONTWRITEBYTECODE=1", f"WEFT_STATS={stats}",
             "UCX_WARN_UNUSED_ENV_VARS=n",
             "bash", "-c", f"{PROLOGUE}{script}\n:"],
            cwd=self.folder, stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
            start_new_session=True)

    def run(self, block):
        stats = tempfile.mkdtemp(dir=self.home)
        text = "\n".join(block.lines)
        scripts = [text]
        if block.mark == "run together":
            scripts = commands.commands(block.lines)
        elif "LD_PRELOAD=" in text:
            scripts = [f"{text}\npython my_program.py"]
        elif "export WEFT_" in text:
            scripts = [f"{text}\nweft run python my_program.py"]
        for name, program in PROGRAMS.items():
            with open(f"{self.folder}/{name}", "w") as file:
                file.write(program)
        started = [self.start(script, f"{stats}/x.%p.stats")
                   for script in scripts]
        where = f"{block.page}:{block.line}"
        outputs = [started[-1].communicate()[0]]
        status = started[-1].returncode
        for process in started[:-1]:
            os.killpg(process.pid, signal.SIGTERM)
            outputs.append(process.communicate()[0])
        said = "\n".join(outputs)
        check(status == 0, f"{where}: status {status}:\n{said}")
        warned = re.findall(r"^.*(?:WARN|ERROR|NET/) *weft: .*|^weft: .*",
                            said, re.M)
        check(not warned, f"{where}: {warned}")
        rows = counters.read_dir(stats)
        rows += [json.loads(line) for line in said.split("\n")
                 if line.startswith('{"')]
        for name, (least, most) in CARRIED.items():
            if f"python {name}" in scripts[-1]:
                carried = counters.payload_received(rows)
                check(least <= carried <= most,
                      f"{where}: weft carried {carried}, {name} sends "
                      f"{least} to {most}:\n{said}")


def commands_of(page, marks):
    blocks = [block for block in commands.blocks(page)
              if block.mark in marks]
    with tempfile.TemporaryDirectory(prefix="weft-docs.") as folder, \
            Network(1) as net:
        host = net.hosts[0]
        # what a host's address is found by
        ip("-n", host.name, "route", "add", "default", "dev", "eth0")
        place = Page(folder, host)
        if "run, long" in marks:
            place.copy_sources()
        else:
            place.install()
        times = []
        for block in blocks:
            start = time.monotonic()
            place.run(block)
            times.append(f"line {block.line} {time.monotonic() - start:.1f} s")
        return ", ".join(times)


def add_tests():
    pages = sorted(os.path.relpath(f"{folder}/{name}", SOURCE)
                   for top in (SOURCE, f"{SOURCE}/docs")
                   for folder, subfolders, names in os.walk(top)
                   for name in names if name.endswith(".md")
                   and (folder == SOURCE or top != SOURCE))
    for page in pages:
        marks = {block.mark for block in commands.blocks(page)}
        for kind, seconds in (("run", 120), ("run, long", 1800)):
            chosen = [kind] if "long" in kind else [kind, "run together"]
            if not marks.intersection(chosen):
                continue

            def run_page(page=page, chosen=chosen):
                return commands_of(page, chosen)
            run_page.__name__ = (f"{page}, the commands"
                                 f"{' that take long' if 'long' in kind else ''}")
            test(seconds, "long" in kind)(run_page)


if __name__ == "__main__":
    os.chdir(SOURCE)
    add_tests()
    main()
