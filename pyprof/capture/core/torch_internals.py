# SPDX-License-Identifier: Apache-2.0
"""Names of torch that it does not promise: each is looked up, and tried where that is harmless, before it is used.

Capture stands on internals of torch, which change from version to version. Every one of them comes through `look_up`,
every change to a class or module of torch through `part`. One that is missing or has changed costs the part of a
recording that needs it and nothing else: `missing` says which, for the file and for one line on stderr.

>>> look_up("torch._C._no_such_name", without="an example", otherwise=int)
<class 'int'>
>>> missing().pop("torch._C._no_such_name")
'an example'
"""

from __future__ import annotations

import importlib
import logging
import re
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch

log = logging.getLogger(__name__)

OLDEST = (2, 4)  # the first torch that PyProf records
names: dict[str, str] = {}  # every name that was looked up -> what a recording lacks without it
_missing: dict[str, str] = {}
_said: set[str] = set()


def look_up(
    path: str, without: str, otherwise: Any = None, check: Callable[[Any], object] | None = None
) -> Any:
    """Return what stands at a dotted path of torch, or `otherwise`.

    `without` names what a recording lacks then, "" if nothing. `check` tries the value; what it raises means that it
    has changed.
    """
    names[path] = without
    try:
        value = _resolve(path)
        if check is not None:
            check(value)
    except Exception as error:
        lack(path, without, error)
        return otherwise
    return value


def _resolve(path: str) -> Any:
    first, *rest = path.split(".")
    found, walked = sys.modules.get(first) or importlib.import_module(first), first
    for name in map(sys.intern, rest):  # Python's cache of attributes keeps the names that it is asked for
        walked = f"{walked}.{name}"
        try:
            found = getattr(found, name)
        except AttributeError:
            try:
                found = importlib.import_module(walked)
            except ImportError:
                raise AttributeError(f"there is no {walked}") from None
    return found


@contextmanager
def part(path: str, without: str) -> Iterator[None]:
    """Do one step of hooking into torch: what it raises is noted under `path` and goes no further."""
    try:
        yield
    except Exception as error:
        lack(path, without, error)


def lack(path: str, without: str, error: Exception) -> None:
    """Note a name that cannot be used; nothing if a recording is whole `without` it."""
    log.debug("%s cannot be used", path, exc_info=error)
    if without:
        _missing.setdefault(path, without)


def missing() -> dict[str, str]:
    """The names that could not be used so far, each with what a recording lacks because of it."""
    return _missing


def say() -> None:
    """Print one line about the names that no line has named yet."""
    new = {path: without for path, without in _missing.items() if path not in _said}
    if not new:
        return
    _said.update(new)
    lacking = "; ".join(dict.fromkeys(new.values()))
    print(
        f"pyprof: torch {torch.__version__} lacks or has changed {', '.join(new)}. Not recorded: {lacking}.",
        file=sys.stderr,
    )


def facts() -> dict[str, str]:
    """For PYPROF_META: the names, and what the recording lacks."""
    return (
        {"torch.missing": "; ".join(f"{path} ({without})" for path, without in _missing.items())}
        if _missing
        else {}
    )


def unsupported() -> str:
    """Return why this torch cannot be recorded at all, "" if it can."""
    found = re.match(r"(\d+)\.(\d+)", str(torch.__version__))
    if found is None or (int(found[1]), int(found[2])) >= OLDEST:  # one that was built by hand is tried
        return ""
    return (
        f"recording needs torch {OLDEST[0]}.{OLDEST[1]} or later, and this is torch {torch.__version__}. "
        "Update torch, or record with torch.profiler and open its trace with PyProf."
    )


def never() -> bool:
    """Stand in for a function that tells whether torch is doing something."""
    return False


class Refused:
    """Stand in for a guard that torch no longer has: what it would protect the program from is not done."""

    def __enter__(self) -> None:
        raise LookupError("torch has another guard than PyProf knows")

    def __exit__(self, *error: object) -> None:
        """Never entered."""


def _enter(guard: Any) -> None:
    with guard():
        pass


# What more than one module uses. Names of one module's own stand there.
is_tracing = look_up(
    "torch._C._is_tracing", "whether torch.jit.trace runs", never, check=lambda tracing: tracing()
)
# The number of the backward that runs on this thread, -1 outside of one.
graph_task = look_up(
    "torch._C._current_graph_task_id", "whether a backward runs", lambda: -1, check=lambda task: task() + 0
)
profiler_enabled = look_up(
    "torch._C._autograd._profiler_enabled",
    "a profile of the program's own",
    never,
    check=lambda enabled: enabled(),
)
# Inside of these the program's own modes, and classes of tensors, are not told of what PyProf reads.
DisableTorchFunction = look_up(
    "torch._C.DisableTorchFunction",
    "parameters, and calls under a mode of the program",
    Refused,
    check=_enter,
)
DisableTorchFunctionSubclass = look_up(
    "torch._C.DisableTorchFunctionSubclass", "calls on subclasses of tensors", Refused, check=_enter
)
