# SPDX-License-Identifier: Apache-2.0
"""The application's command line, and the command line that records it.

`python -u train.py 1` becomes `python -u -m pyprof run -o FILE train.py 1`: the interpreter stays the same, with its
options and its packages, whatever precedes it (env, numactl, taskset, mpirun ...).

>>> found = split(["env", "A=1", "python3", "-uW", "ignore", "-m", "train", "-v"])
>>> found.before, found.interpreter, found.flags, found.module, found.arguments
(('env', 'A=1'), 'python3', ('-uW', 'ignore'), True, ('train', '-v'))
>>> " ".join(found.recorded(["-o", "x.sqlite"]))
'env A=1 python3 -uW ignore -m pyprof run -o x.sqlite -m train -v'
"""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Sequence
from contextlib import suppress
from typing import NamedTuple

from pyprof.core.errors import WHERE, UsageError, install

_PYTHON = re.compile(r"(python|pypy)(\d+(\.\d+)?)?t?(\.exe)?")
_WITH_VALUE = "WX"  # options of the interpreter that take a value
_TERMINATORS = "cm"  # options that end the interpreter's own
_NO_PYPROF = 7
# They start the ranks themselves, as python SCRIPT, which would not be recorded.
_LAUNCHERS = ("torchrun", "torch.distributed.run", "torch.distributed.launch", "accelerate", "deepspeed")


class Application(NamedTuple):
    """A parsed command line. `arguments` begin with the script or module."""

    before: tuple[str, ...]
    interpreter: str
    flags: tuple[str, ...]
    module: bool
    arguments: tuple[str, ...]

    @property
    def words(self) -> list[str]:
        """The original command line."""
        program = ["-m", *self.arguments] if self.module else list(self.arguments)
        return [*self.before, self.interpreter, *self.flags, *program]

    def recorded(self, options: Sequence[str]) -> list[str]:
        """Return the command line that runs it under `pyprof run`."""
        program = ["-m", *self.arguments] if self.module else list(self.arguments)
        return [*self.before, self.interpreter, *self.flags, "-m", "pyprof", "run", *options, *program]


def split(words: Sequence[str]) -> Application:
    """Split a command line into its parts. Raises UsageError, with advice, if it does not run Python."""
    _refuse_launcher(words)
    place = next((i for i, word in enumerate(words) if _PYTHON.fullmatch(os.path.basename(word))), None)
    if place is None:
        words, place = _of_script(words)
    interpreter, rest = words[place], list(words[place + 1 :])
    flags: list[str] = []
    while rest and rest[0].startswith("-") and rest[0] != "-":
        word = rest.pop(0)
        if word == "--check-hash-based-pycs":
            flags += [word, *rest[:1]]
            del rest[:1]
            continue
        if word.startswith("--"):
            flags.append(word)
            continue
        end = next((i for i, letter in enumerate(word) if letter in _WITH_VALUE + _TERMINATORS), None)
        if end is not None and word[end] == "c":
            raise UsageError(f"{shlex.join(words)}: python -c has no file; expected a script or -m MODULE.")
        if end is not None and word[end] == "m":
            if word[1:end]:
                flags.append(word[:end])
            rest = [word[end + 1 :], *rest] if word[end + 1 :] else rest
            _expect(words, rest, "a module after -m")
            return Application(tuple(words[:place]), interpreter, tuple(flags), True, tuple(rest))
        flags.append(word)
        if end is not None and end == len(word) - 1 and rest:
            flags.append(rest.pop(0))
    _expect(words, rest, "a script")
    if rest[0] == "-":
        raise UsageError(f"{shlex.join(words)}: a script from stdin has no file; expected a script's name.")
    return Application(tuple(words[:place]), interpreter, tuple(flags), False, tuple(rest))


def _refuse_launcher(words: Sequence[str]) -> None:
    """Raise UsageError for launchers of several ranks, as a command or after -m."""
    for before, word in zip(("", *words), words):
        if os.path.basename(word) in _LAUNCHERS and before in ("", "-m"):
            raise UsageError(
                f"{word}: starts processes of its own; let it start pyprof run, as in torchrun --nproc-per-node 2 "
                "-m pyprof run -o nsys_profile.sqlite train.py, then dlprof --nsys_database=nsys_profile.rank0.sqlite."
            )


def _expect(words: Sequence[str], rest: list[str], what: str) -> None:
    if not rest:
        raise UsageError(f"{shlex.join(words)}: expected {what}, as in dlprof python train.py.")


def _of_script(words: Sequence[str]) -> tuple[list[str], int]:
    """Resolve a command that is itself a Python script, such as torchrun: its first line names the interpreter."""
    command = words[0]
    path = shutil.which(command)
    if path is None:
        raise UsageError(f"{command}: no such command; expected dlprof [options] python train.py.")
    with open(path, "rb") as file:
        line = file.readline(4096)
    parts = line[2:].decode("utf-8", "replace").split() if line.startswith(b"#!") else []
    if len(parts) > 1 and os.path.basename(parts[0]) == "env":
        parts = parts[2:] if parts[1] == "-S" else parts[1:]
    if not parts or not _PYTHON.fullmatch(os.path.basename(parts[0])):
        raise UsageError(
            f"{command} does not run Python; expected dlprof [options] python train.py. "
            "To profile what a shell script starts, write dlprof into the script."
        )
    return [*parts, path, *words[1:]], 0


def check(app: Application) -> Application:
    """Return the application to record, run by this interpreter if `python` on the PATH has no PyProf.

    Raises UsageError if it cannot be recorded, before it runs.
    """
    first = (*app.before, app.interpreter)[0]
    if shutil.which(first) is None:
        raise UsageError(f"{first}: no such command; expected dlprof [options] python train.py.")
    if app.before:
        return app  # it may set another folder, PATH or machine
    script = app.arguments[0]
    if not app.module and not os.path.exists(script):
        raise UsageError(f"{script}: no such file; expected a Python script.")
    # Search as the recorded program will: with the script's folder first, it could find another one.
    code = f"import importlib.util as u, sys; sys.exit(0 if u.find_spec('pyprof.commands') else {_NO_PYPROF})"
    try:
        done = subprocess.run([app.interpreter, *app.flags, "-c", code], capture_output=True, text=True)
    except OSError as error:
        raise UsageError(f"{app.interpreter} cannot be run ({error.strerror}).") from error
    if done.returncode == 0:
        return app
    missing = done.returncode == _NO_PYPROF or "No module named 'pyprof'" in done.stderr
    if missing:
        if os.sep not in app.interpreter:  # dlprof from an environment that is not activated
            with suppress(UsageError):
                return check(app._replace(interpreter=sys.executable))
        raise UsageError(
            f"{app.interpreter} has no pyprof, which records the program; install it there: "
            f"{install(python=app.interpreter)} {WHERE}."
        )
    last = done.stderr.strip().splitlines()
    raise UsageError(f"{app.interpreter} is not a working Python ({last[-1] if last else 'no message'}).")


def nsys_options(text: str) -> list[str]:
    """Return the options of --nsys_opts, which may be quoted twice. Raises UsageError.

    >>> nsys_options('"-t cuda,nvtx -s none"')
    ['-t', 'cuda,nvtx', '-s', 'none']
    """
    inner = text.strip()
    if len(inner) > 1 and inner[0] == inner[-1] and inner[0] in "\"'":
        inner = inner[1:-1]
    try:
        words = shlex.split(inner)
    except ValueError as error:
        raise UsageError(
            f"--nsys_opts={text} cannot be split into words ({error}); expected '\"-t cuda,nvtx -s none\"'."
        ) from error
    if not {"cuda", "nvtx"} <= set(value_of(words, "t", "trace").split(",")):
        raise UsageError(f"--nsys_opts={text} must trace cuda and nvtx, as '\"-t cuda,nvtx -s none\"' does.")
    return words


def value_of(words: Sequence[str], short: str, long: str) -> str:
    """Return the value of an option among words: `-t X`, `-tX`, `--trace X`, `--trace=X`; "" without it.

    >>> value_of(["-s", "cpu", "--trace=cuda,nvtx"], "t", "trace"), value_of(["-scpu"], "s", "sample")
    ('cuda,nvtx', 'cpu')
    """
    for i, word in enumerate(words):
        name, equals, value = word.partition("=")
        if name == f"--{long}":
            return value if equals else "".join(words[i + 1 : i + 2])
        if word.startswith(f"-{short}") and not word.startswith("--"):
            return word[2:].removeprefix("=") or "".join(words[i + 1 : i + 2])
    return ""
