# SPDX-License-Identifier: BSD-3-Clause
"""
A cluster as its users find it, in a network of hosts of its own: a home on all
of them, modules, and commands of batch systems, which are stand-ins
(recipes/bin). And the lines that the page on launchers shows.
"""
import contextlib
import glob
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time

from . import counters
from .cluster import own_environ, weft_command
from .netns import Network
from .program import last_json
from .tap import Skip, check

HERE = os.path.dirname(os.path.abspath(__file__))
RECIPES = os.path.abspath(f"{HERE}/../recipes")
PROGRAMS = os.path.abspath(f"{HERE}/../programs")
ROOT = os.path.abspath(f"{HERE}/../../..")
LMOD = "/usr/share/lmod/lmod/init/bash"
# Of what Dask moves, what weft may carry beside it: see test_dask.py.
MARGIN = 1.2
# Nothing is judged by its speed: a limit ends what hangs.
HANGS = 120


class Site:
    """
    A cluster as its users find it: nodes[0] and so on, a login node, a home on
    all of them, modules.  Whatever runs there has this home in its environment,
    by which it is found.
    """

    def __init__(self, net, folder, nodes, modules):
        self.net = net
        self.folder = folder
        self.nodes = [host.name for host in net.hosts[:nodes]]
        self.login = net.hosts[nodes].name
        stand_in = f"{folder}/stand-in"
        os.makedirs(f"{stand_in}/jobs")
        for name, text in (
                ("nodes", "".join(f"{name}\n" for name in self.nodes)),
                ("etc-hosts", "127.0.0.1 localhost\n" + "".join(
                    f"{host.address} {host.name} node{host.number}\n"
                    for host in net.hosts))):
            with open(f"{stand_in}/{name}", "w") as file:
                file.write(text)
        os.mkdir(f"{folder}/bin")
        for path in glob.glob(f"{RECIPES}/bin/*"):
            os.symlink(path, f"{folder}/bin/{os.path.basename(path)}")
        for name in "bsub", "bjobs", "bkill":
            os.symlink(f"{RECIPES}/bin/lsf", f"{folder}/bin/{name}")
        for name in "sbatch", "srun", "squeue", "scancel":
            os.symlink(f"{RECIPES}/bin/slurm", f"{folder}/bin/{name}")
        for name, paths in (modules or {}).items():
            path = f"{folder}/modulefiles/{name}.lua"
            os.makedirs(os.path.dirname(path), exist_ok=True)
            with open(path, "w") as file:
                file.write("".join(f'prepend_path("PATH", "{path}")\n'
                                   for path in paths))
        self.settings = {
            "STAND_IN": stand_in, "LANG": "C.UTF-8",
            "MEMBERWORK": f"{folder}/member", "PYTHONUNBUFFERED": "1",
            "PYTHONDONTWRITEBYTECODE": "1",
            "DASK_DISTRIBUTED__ADMIN__LOW_LEVEL_LOG_LENGTH": "1000",
            "WEFT_STATS": f"{folder}/all.%p.stats"}
        self.path = [os.path.dirname(sys.executable),
                     os.path.dirname(weft_command())]
        self.profile = f"PATH={':'.join(self.path)}:$PATH\n"
        if modules is not None:
            self.settings.update({"BASH_ENV": LMOD, "MODULEPATH":
                                  f"{folder}/modulefiles"})
            self.profile = f". {LMOD}\n"
        os.makedirs(f"{folder}/member/gen119")

    def write_profile(self):
        """What a login or ssh finds, of which a batch job of PBS's is one."""
        with open(f"{self.folder}/.bashrc", "w") as file:
            for name, value in self.settings.items():
                file.write(f"export {name}='{value}'\n")
            file.write(f"PATH={self.folder}/bin:$PATH:/usr/sbin:/sbin\n"
                       f"{self.profile}")
        shutil.copy(f"{self.folder}/.bashrc", f"{self.folder}/.bash_profile")

    def env(self):
        env = own_environ()
        path = [f"{self.folder}/bin", *self.path, env["PATH"], "/usr/sbin"]
        env.update(self.settings, HOME=self.folder, USER="root",
                   LOGNAME="root", PATH=":".join(path))
        return env

    def start(self, *argv, log, on=None):
        with open(f"{self.folder}/{log}.log", "w") as out:
            return subprocess.Popen(["on", on or self.login, *argv],
                                    env=self.env(), cwd=self.folder,
                                    stdout=out, stderr=out,
                                    stdin=subprocess.DEVNULL)

    def run(self, *argv, fails=False):
        """A command on the login node, @fails None if it may: its output."""
        env = self.env()
        argv = ["on", self.login, *argv]
        try:
            done = subprocess.run(argv, env=env, cwd=self.folder,
                                  timeout=HANGS, stdin=subprocess.DEVNULL,
                                  stdout=subprocess.PIPE,
                                  stderr=subprocess.STDOUT, text=True)
        except subprocess.TimeoutExpired as late:
            raise AssertionError(f"{argv} hangs:\n{late.stdout}") from late
        check(fails is None or (done.returncode != 0) == fails,
              f"{argv}: status {done.returncode}:\n{done.stdout}")
        return done.stdout

    def put(self, name, *changes, to=None):
        """A file of the page, @to if not @name, each change made once."""
        text = shown(name)
        for old, new in changes:
            check(text.count(old) == 1, f"{name} has not one '{old}'")
            text = text.replace(old, new)
        path = f"{self.folder}/{to or name}"
        with open(path, "w") as file:
            file.write(text)
        os.chmod(path, 0o755)

    def type(self, line, fails=False):
        """A line of the page, in a shell on the login node: its output."""
        check(re.search(f"^    {re.escape(line)}$", page(), re.M),
              f"the page does not show '{line}'")
        return self.run("bash", "-c", line, fails=fails)

    def client(self, program, *args):
        return self.run("weft", "run", "python", program, *args)

    def workers(self, *args):
        said = self.client(f"{PROGRAMS}/workers.py", *args)
        return last_json(said)["workers"]

    def read(self, name):
        """A file of the user's; nothing where there is none."""
        with contextlib.suppress(FileNotFoundError), \
                open(f"{self.folder}/{name}", errors="replace") as file:
            return file.read()
        return ""

    def wait_for(self, condition, what):
        deadline = time.monotonic() + HANGS
        while not condition():
            check(time.monotonic() < deadline,
                  f"not within {HANGS} s: {what}")
            time.sleep(0.1)

    def processes(self):
        """{pid: command line} of all that runs with this home."""
        found, home = {}, f"HOME={self.folder}\0".encode()
        for folder in glob.glob("/proc/[0-9]*"):
            with contextlib.suppress(OSError):
                with open(f"{folder}/environ", "rb") as file:
                    if home not in b"\0" + file.read():
                        continue
                with open(f"{folder}/cmdline") as file:
                    found[int(folder[6:])] = file.read().replace("\0", " ")
        return found

    def wait_until_all_ended(self):
        self.wait_for(lambda: not self.processes(),
                      f"the end of {list(self.processes().values())}")

    def carried_to(self, workers, netdev=None):
        """
        weft brought @workers what Dask moved, and little beside it, over the
        network unless @netdev says otherwise.
        """
        rows = counters.read_dir(self.folder)
        pids = {worker["pid"] for worker in workers}
        moved = sum(worker["moved"] for worker in workers)
        mine = [row for row in rows if row["pid"] in pids]
        check({row["pid"] for row in mine} == pids, "a worker has no counters")
        got = counters.payload_received(mine)
        check(0 < moved <= got <= MARGIN * moved,
              f"Dask moved {moved}, weft {got}")
        used = {row["netdev"] for row in rows}
        check(used <= {"lo", "shm", self.net.device} and
              (netdev or self.net.device) in used, f"over {used}")
        return f"Dask {moved / 1e6:.0f} MB, weft {got / 1e6:.0f} MB"

    def inert_in(self, workers):
        for worker in workers:
            check(worker["libraries"] == ["libweft_preload.so"],
                  f"loaded: {worker['libraries']}")
            check(worker["moved"] > 0, "Dask moved nothing")
        rows = counters.read_dir(self.folder)
        check(not rows, f"weft carried something: {rows}")


@contextlib.contextmanager
def site(device, nodes, modules=None):
    """@modules: name to folders for PATH, beside weft's; None: no Lmod there."""
    if modules is not None:
        if not os.path.exists(LMOD):
            raise Skip("no Lmod here (Debian: lmod)")
        modules = {"weft": [os.path.dirname(weft_command())], **modules}
    with Network(nodes + 1, device) as net, \
            tempfile.TemporaryDirectory(prefix="weft-e2e.",
                                        ignore_cleanup_errors=True) as folder:
        at = Site(net, folder, nodes, modules)
        try:
            yield at
        except BaseException:
            for path in sorted(glob.glob(f"{folder}/**/*.*", recursive=True)):
                if re.search(r"\.(log|out|[oe]\d+)$", path):
                    with open(path, errors="replace") as file:
                        print(f"--- {path}", file.read()[-3000:], sep="\n",
                              file=sys.stderr)
            raise
        finally:
            for pid in at.processes():
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)


def page():
    with open(f"{ROOT}/docs/recipes/launchers.md") as file:
        return file.read()


def shown(name):
    """The file that the page shows behind the words "`NAME`:"."""
    found = re.search(rf"`{re.escape(name)}`[^`\n]*:\n\n```\w+\n(.*?)^```$",
                      page(), re.M | re.S)
    check(found, f"the page does not show {name}")
    return found[1]
