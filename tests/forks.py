# SPDX-License-Identifier: Apache-2.0
"""Programs in processes of their own, without the seconds that importing torch takes: forks of one that has it.

PyProf is imported by the program, as always. A program can be killed, stopped and limited. At its end Python frees what
the program imported and made, but not torch, whose operators take longer to be freed than most of the programs do;
with `Forks.whole` it frees everything, for tests of what is at the end of a process.
"""

from __future__ import annotations

import copy
import json
import os
import signal
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
_SERVER = """
import atexit, ctypes, gc, json, multiprocessing, os, signal, sys
libc, kept = ctypes.CDLL(None), {}
atexit.register(lambda: [sys.modules.pop(name, None) for name in kept])  # the first to be registered is the last to run
replies = os.fdopen(os.dup(1), "w")
os.dup2(2, 1)  # what a library says when it is imported is no reply
import torch, torch.distributed, numpy, sqlite3
exec(sys.argv[1])
torch.set_num_threads(1)
gc.collect()
gc.freeze()  # a fork's collections would look at all of torch, and copy it
while line := sys.stdin.readline():
    order = json.loads(line)
    if "wait" in order:
        print(os.waitpid(order["wait"], 0)[1], file=replies, flush=True)
        continue
    child = os.fork()
    if child:
        print(child, file=replies, flush=True)
        continue
    replies.close()
    if order["brief"]:
        kept.update(sys.modules)
        for name in ("sys", "builtins", "__main__"):
            del kept[name]
        ctypes.pythonapi.Py_IncRef(ctypes.py_object(kept))
        libc.on_exit(libc._exit, None)
    signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell may have started us with ctrl-C ignored
    os.chdir(order["folder"])
    for number, name in ((0, os.devnull), (1, order["stdout"]), (2, order["stderr"])):
        os.dup2(os.open(name, os.O_RDWR | os.O_CREAT | os.O_TRUNC, 0o666), number)
    multiprocessing.process.ORIGINAL_DIR = order["folder"]
    os.environ.update(order["environment"])
    sys.argv = order["argv"]
    sys.path[0] = os.path.dirname(os.path.join(order["folder"], order["argv"][0]))
    break
if line:
    exec(compile(order["prelude"], "prelude", "exec"), {})
    if order["command"]:
        from pyprof.commands.main import main
        sys.exit(main(order["command"]))
    path = os.path.abspath(sys.argv[0])
    sys.modules["__main__"].__dict__.update(__file__=path)
    with open(path) as file:
        text = file.read()
    exec(compile(text, path, "exec"), sys.modules["__main__"].__dict__)
"""


@dataclass
class Program:
    """A running program."""

    forks: Forks
    pid: int
    out: Path
    err: Path

    def signal(self, number: int) -> None:
        os.kill(self.pid, number)

    def wait(self) -> int:
        """Its exit code; the negative number of the signal that ended it."""
        return os.waitstatus_to_exitcode(self.forks.order(wait=self.pid))

    @property
    def state(self) -> str:
        """As in /proc: R running, S sleeping, T stopped, Z ended."""
        return Path(f"/proc/{self.pid}/stat").read_text().rsplit(")", 1)[1].split()[0]

    @property
    def stdout(self) -> str:
        return self.out.read_text()

    @property
    def stderr(self) -> str:
        return self.err.read_text()


class Forks:
    """A process that has imported torch, and forks."""

    def __init__(self, logs: Path, more: str = "") -> None:
        """`more` is what the process does before all forks, to import what they would each import."""
        unwanted = ("PYPROF_OUTPUT", "PYPROF_NVTX", "RANK", "WORLD_SIZE", "LOCAL_RANK")
        environment = {name: value for name, value in os.environ.items() if name not in unwanted}
        environment |= {"PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}
        self._logs, self._count, self._brief = logs, 0, True
        self._server = subprocess.Popen(
            [sys.executable, "-c", _SERVER, more],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment,
        )  # fmt: skip

    def whole(self) -> Forks:
        """The same process; programs that it forks free all of torch at their end."""
        whole = copy.copy(self)
        whole._logs, whole._brief = self._logs / "whole", False
        whole._logs.mkdir(exist_ok=True)
        return whole

    def order(self, **what: Any) -> int:
        assert self._server.stdin is not None
        assert self._server.stdout is not None
        self._server.stdin.write(json.dumps(what) + "\n")
        self._server.stdin.flush()
        return int(self._server.stdout.readline())

    def start(
        self, folder: Path, source: str | Path, *command: str, prelude: str = "",
        arguments: Sequence[str] = (), overview: bool = False, **environment: str,
    ) -> Program:  # fmt: skip
        """Start a script, or a text as the script net.py, with its arguments in a folder; with a command (`run`,
        options), under `pyprof`; without the overview at the end, which takes longer than most of the tests."""
        if command[:1] == ("run",) and not overview:
            command = ("run", "--quiet", *command[1:])
        script = str(source)
        if isinstance(source, str):
            script = "net.py"
            path = folder / script
            if not path.exists() or path.read_text() != source:  # another one may be reading it
                path.write_text(source)
        self._count += 1
        out, err = (self._logs / f"{self._count}.{name}" for name in ("out", "err"))
        pid = self.order(
            folder=str(folder), stdout=str(out), stderr=str(err), environment=environment, prelude=prelude,
            brief=self._brief, argv=[script, *arguments], command=[*command, script, *arguments] if command else [],
        )  # fmt: skip
        return Program(self, pid, out, err)

    def run(self, folder: Path, source: str | Path, *command: str, **options: Any) -> tuple[int, Program]:
        """The same to its end: its exit code, and what it printed."""
        program = self.start(folder, source, *command, **options)
        return program.wait(), program

    def close(self) -> None:
        assert self._server.stdin is not None
        assert self._server.stdout is not None
        self._server.stdin.close()
        self._server.stdout.close()
        self._server.wait()


KILL = signal.SIGKILL
