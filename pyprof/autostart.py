# SPDX-License-Identifier: Apache-2.0
"""Recording without an edit: `pyprof enable` has Python import this module at its start, where the environment asks.

The file that does it (`enabling.py`) imports nothing unless PYPROF_OUTPUT, PYPROF_STEPS or PYPROF_TRIGGER is set. Then
this module waits for the program to import torch, which it never imports itself, and calls `init` right after. Programs
that only start others are left alone. Nothing here ever stops a program.
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
# Programs that import torch and compute nothing: launchers, helpers of torch, and our own commands. By the name of the
# script or of the module that runs as one, and what both end with. A launcher that is not here has nothing to record,
# and then no file is written either.
_OTHERS = {
    "pyprof", "dlprof", "dlprofviewer", "prof.py", "parse.py",
    "torchrun", "torch.distributed.run", "torch.distributed.launch", "torch.utils.collect_env",
    "accelerate", "accelerate-launch", "accelerate.commands.accelerate_cli", "accelerate.commands.launch",
    "deepspeed", "ds", "deepspeed.launcher.launch", "deepspeed.launcher.runner", "composer", "composer.cli",
    "lightning", "fabric", "ray", "dask", "horovodrun", "tensorboard", "pip", "conda",
}  # fmt: skip
_ENDS = ("torch/_inductor/compile_worker/__main__.py", "torch._inductor.compile_worker")
_WITH_ARGUMENT = ("-W", "-X", "--check-hash-based-pycs")  # options of Python


def program(command: Sequence[str]) -> str:
    """The script or the module that a command line of Python runs, "" for none.

    >>> program(["python", "-um", "torch.distributed.run", "x.py"]), program(["python3", "bin/torchrun", "x.py"])
    ('torch.distributed.run', 'bin/torchrun')
    """
    rest = iter(command[1:])
    for word in rest:
        if word in _WITH_ARGUMENT:
            next(rest, None)
        elif word.startswith("-") and word != "-":
            letter = word.lstrip("-EIOPRSbdiqsuvxB")[:1]  # -um is -u -m
            if letter in ("m", "c") and not word.startswith("--"):
                inside = word.partition(letter)[2]
                return (inside or next(rest, "")) if letter == "m" else ""
        else:
            return word
    return ""


def starts_others(name: str) -> bool:
    """Whether a program only starts others."""
    return os.path.basename(name) in _OTHERS or name.split(".__main__")[0] in _OTHERS or name.endswith(_ENDS)


class Finder:
    """Stands before all finders of modules until torch is imported. Some programs only ask whether torch is there."""

    def __init__(self) -> None:
        self._asking = threading.local()

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> ModuleSpec | None:
        """Of torch, what the other finders find, with our function after its import."""
        if name != "torch" or getattr(self._asking, "others", False):
            return None
        self._asking.others = True
        try:
            spec = importlib.util.find_spec(name)
            loader: Any = spec.loader if spec is not None else None
            if loader is not None:
                _follow(loader)
            return spec
        except Exception:
            return None
        finally:
            self._asking.others = False


def _follow(loader: Any) -> None:
    """Have a loader call us once, after the module is there."""
    load = loader.exec_module

    @functools.wraps(load)
    def exec_module(module: ModuleType) -> None:
        vars(loader).pop("exec_module", None)
        load(module)  # where it raises the program may try again
        if _finder in sys.meta_path:
            sys.meta_path.remove(_finder)
            begin()

    loader.exec_module = exec_module


def begin() -> None:
    """Call `init`, or leave it to who is importing our modules at the moment."""
    try:
        ours = [name for name in sys.modules if name.startswith("pyprof.")]
        if any(getattr(sys.modules[name].__spec__, "_initializing", False) for name in ours):
            _waiting.append(True)
            return
        importlib.import_module("pyprof.capture.automatic").begin()
    except Exception as error:
        try:
            print(f"pyprof: nothing is recorded ({type(error).__name__}: {error}).", file=sys.stderr)
        except Exception:  # nobody to tell
            return


_waiting: list[bool] = []


def proceed() -> None:
    """Our modules are imported: begin, if that had to wait for them."""
    if _waiting:
        _waiting.clear()
        begin()


def install() -> None:
    """Wait for torch, if the program is not there to start others. Python may read one .pth file twice."""
    waiting = "torch" in sys.modules or _finder in sys.meta_path
    if not waiting and not starts_others(program(sys.orig_argv)):
        sys.meta_path.insert(0, _finder)


_finder: Any = Finder()
