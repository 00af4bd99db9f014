# SPDX-License-Identifier: BSD-3-Clause
"""
The Dask program of examples/ on a scheduler and two workers, for processors on
which Python takes a minute to import it all: one process imports, and the
scheduler, the workers and the client are its children.

usage: transpose.py FOLDER INTERFACE

Prints what the client prints.
"""
import os
import runpy
import signal
import sys
import time

import dask
import dask.array  # noqa: F401, this and what follows: for the children
import distributed
import distributed.cli.dask_scheduler as scheduler
import distributed.cli.dask_worker as worker
import distributed_ucxx.ucxx  # noqa: F401
import ucxx.core

PATIENCE = 800  # seconds, for all of it
END = time.monotonic() + PATIENCE
PROGRAM = os.path.abspath(f"{os.path.dirname(__file__)}/../../examples/demo.py")
SIZE, CHUNK, WORKERS = 1200, 400, 2


def be_patient():
    for what in "timeouts.connect", "timeouts.tcp":
        dask.config.set({f"distributed.comm.{what}": f"{PATIENCE}s"})
    # what ucxx waits for a peer's first words is nothing but a default
    for function in ucxx.core.create_listener, ucxx.core.create_endpoint:
        assert function.__defaults__[-1] == 5.0
        function.__defaults__ = (*function.__defaults__[:-1], float(PATIENCE))


class Child:
    def __init__(self, folder, name, main, *args):
        self.name = name
        self.log = f"{folder}/{name}.log"
        self.status = None
        output = os.open(self.log, os.O_CREAT | os.O_WRONLY, 0o644)
        self.pid = os.fork()
        if self.pid:
            os.close(output)
            return
        os.dup2(output, 1)
        os.dup2(output, 2)
        os.environ["WEFT_STATS"] = f"{folder}/{name}.%p.stats"
        sys.argv = [name, *args]
        # an orderly end, for the counters
        sys.exit(main())

    def said(self):
        with open(self.log) as file:
            return file.read()

    def ended(self):
        if self.status is None:
            pid, status = os.waitpid(self.pid, os.WNOHANG)
            if pid:
                self.status = os.waitstatus_to_exitcode(status)
        return self.status is not None

    def stop(self):
        end = time.monotonic() + 60
        if not self.ended():
            os.kill(self.pid, signal.SIGTERM)
        while not self.ended() and time.monotonic() < end:
            time.sleep(0.1)
        if not self.ended():
            os.kill(self.pid, signal.SIGKILL)
            time.sleep(1)
            self.ended()


def wait_for(condition, what, children):
    while not condition():
        if any(child.ended() for child in children):
            give_up(f"ended before the {what}", children)
        if time.monotonic() > END:
            give_up(f"no {what} after {PATIENCE} s", children)
        time.sleep(0.1)


def give_up(why, children):
    print(why)
    for child in reversed(children):
        child.stop()
    for child in children:
        print(f"--- {child.name}: {child.status}\n{child.said()}")
    sys.exit(1)


def main():
    folder, interface = sys.argv[1:]
    file = f"{folder}/scheduler.json"
    place = ["--scheduler-file", file, "--interface", interface,
             "--no-dashboard"]
    be_patient()
    children = [Child(folder, "scheduler", scheduler.main,
                      "--protocol", "ucxx", "--port", "0", *place)]
    wait_for(lambda: "Scheduler at:" in children[0].said() and
             os.path.exists(file), "scheduler", children)
    for number in range(1, WORKERS + 1):
        children.append(Child(
            folder, f"worker{number}", worker.main, "--name", str(number),
            "--nthreads", "1", "--no-nanny", "--memory-limit", "0",
            "--local-directory", folder, *place))
    for child in children[1:]:
        wait_for(lambda: "Registered to" in child.said(), "registration",
                 children)
    client = Child(
        folder, "client",
        lambda: runpy.run_path(PROGRAM, run_name="__main__") and None,
        file, str(SIZE), str(CHUNK), "1", str(WORKERS))
    wait_for(client.ended, "result", children)
    for child in reversed(children):
        child.stop()
    if any(child.status for child in (*children, client)):
        give_up("ended badly", (*children, client))
    print(client.said())


if __name__ == "__main__":
    main()
