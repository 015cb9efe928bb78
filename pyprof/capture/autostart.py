# SPDX-License-Identifier: Apache-2.0
"""Recording without an edit: `pyprof enable` makes Python import this module at its start, if the environment requests
it.

The .pth file (`commands/enable.py`) imports nothing unless PYPROF_OUTPUT, PYPROF_STEPS or PYPROF_TRIGGER is set.
Then this module waits for the program to import torch, which it never imports itself, and calls `init` right after.
Programs that only start others are left alone. Nothing here ever stops a program.
"""

from __future__ import annotations

import functools
import importlib.util
import os
import sys
import threading
from collections.abc import Sequence
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any

VARIABLES = ("PYPROF_OUTPUT", "PYPROF_STEPS", "PYPROF_TRIGGER")
# Programs that import torch and compute nothing: launchers, helpers of torch, and PyProf's own commands. By the name of
# the script or module, and by suffixes. A launcher that is missing here has nothing to record, and then no file is
# written either.
_LAUNCHERS = {
    "pyprof", "dlprof", "dlprofviewer", "prof.py", "parse.py",
    "torchrun", "torch.distributed.run", "torch.distributed.launch", "torch.utils.collect_env",
    "accelerate", "accelerate-launch", "accelerate.commands.accelerate_cli", "accelerate.commands.launch",
    "deepspeed", "ds", "deepspeed.launcher.launch", "deepspeed.launcher.runner", "composer", "composer.cli",
    "lightning", "fabric", "ray", "dask", "horovodrun", "tensorboard", "pip", "conda",
}  # fmt: skip
_ENDS = ("torch/_inductor/compile_worker/__main__.py", "torch._inductor.compile_worker")
_WITH_ARGUMENT = ("-W", "-X", "--check-hash-based-pycs")  # options of Python


def program(command: Sequence[str]) -> str:
    """Return the script or the module that a Python command line runs, "" for none.

    >>> program(["python", "-um", "torch.distributed.run", "x.py"]), program(["python3", "bin/torchrun", "x.py"])
    ('torch.distributed.run', 'bin/torchrun')
    """
    words = iter(command[1:])
    for word in words:
        if word in _WITH_ARGUMENT:
            next(words, None)
        elif word.startswith("-") and word != "-":
            letter = word.lstrip("-EIOPRSbdiqsuvxB")[:1]  # -um is -u -m
            if letter in ("m", "c") and not word.startswith("--"):
                inside = word.partition(letter)[2]
                return (inside or next(words, "")) if letter == "m" else ""
        else:
            return word
    return ""


def is_launcher(name: str) -> bool:
    """Return whether a program only starts others."""
    return os.path.basename(name) in _LAUNCHERS or name.split(".__main__")[0] in _LAUNCHERS or name.endswith(_ENDS)


class Finder:
    """First finder of modules until torch is imported. Some programs only check whether torch is installed."""

    def __init__(self) -> None:
        self._state = threading.local()

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> ModuleSpec | None:
        """Return the spec of torch from the other finders, with a hook after its import."""
        if name != "torch" or getattr(self._state, "searching", False):
            return None
        self._state.searching = True
        try:
            spec = importlib.util.find_spec(name)
            loader: Any = spec.loader if spec is not None else None
            if loader is not None:
                _follow(loader)
            return spec
        except Exception:
            return None
        finally:
            self._state.searching = False


def _follow(loader: Any) -> None:
    """Make a loader call `begin` once, after the module is loaded."""
    load = loader.exec_module

    @functools.wraps(load)
    def exec_module(module: ModuleType) -> None:
        vars(loader).pop("exec_module", None)
        load(module)  # if it raises the program may try again
        if _finder in sys.meta_path:
            sys.meta_path.remove(_finder)
            begin()

    loader.exec_module = exec_module


def begin() -> None:
    """Call `init`, or postpone it while a module of PyProf is being imported."""
    try:
        modules = [name for name in sys.modules if name.startswith("pyprof.")]
        if any(getattr(sys.modules[name].__spec__, "_initializing", False) for name in modules):
            _waiting.append(True)
            return
        importlib.import_module("pyprof.capture.automatic").begin()
    except Exception as error:
        try:
            print(f"pyprof: nothing is recorded ({type(error).__name__}: {error}).", file=sys.stderr)
        except Exception:  # stderr may be closed
            return


_waiting: list[bool] = []


def proceed() -> None:
    """Begin now, if that was postponed until the modules were imported."""
    if _waiting:
        _waiting.clear()
        begin()


def install() -> None:
    """Wait for torch, unless the program only starts others. Python may read one .pth file twice."""
    waiting = "torch" in sys.modules or _finder in sys.meta_path
    if not waiting and not is_launcher(program(sys.orig_argv)):
        sys.meta_path.insert(0, _finder)


_finder: Any = Finder()
