# SPDX-License-Identifier: Apache-2.0
"""Names of torch that it does not promise: each is looked up, and tried where that is harmless, before it is used.

Capture depends on internals of torch, which change from version to version. All of them come through `look_up`, all
changes to a class or module of torch through `part`. A name that is missing or has changed costs only the part of a
recording that needs it: `missing` lists these, for the file and for one line on stderr.

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

from pyprof.capture.core.internal_errors import internal

log = logging.getLogger(__name__)

OLDEST = (2, 4)  # the first torch that PyProf records
names: dict[str, str] = {}  # every name that was looked up -> what a recording lacks without it
_missing: dict[str, str] = {}
_reported: set[str] = set()


def look_up(path: str, without: str, otherwise: Any = None, check: Callable[[Any], object] | None = None) -> Any:
    """Return the value at a dotted path of torch, or `otherwise`.

    `without` names what a recording lacks in that case, "" if nothing. `check` tries the value; an exception from it
    means that the value has changed.
    """
    names[path] = without
    try:
        value = _resolve(path)
        if check is not None:
            check(value)
    except internal() as error:
        lack(path, without, error)
        return otherwise
    return value


def _resolve(path: str) -> Any:
    first, *rest = path.split(".")
    value, path_so_far = sys.modules.get(first) or importlib.import_module(first), first
    for name in map(sys.intern, rest):  # Python's attribute cache keeps the names that are looked up
        path_so_far = f"{path_so_far}.{name}"
        try:
            value = getattr(value, name)
        except AttributeError:
            try:
                value = importlib.import_module(path_so_far)
            except ImportError:
                raise AttributeError(f"there is no {path_so_far}") from None
    return value


@contextmanager
def part(path: str, without: str) -> Iterator[None]:
    """Run one step of hooking into torch: an exception is noted under `path` and suppressed."""
    try:
        yield
    except internal() as error:
        lack(path, without, error)


def lack(path: str, without: str, error: Exception) -> None:
    """Note a name that cannot be used; nothing is noted if a recording is complete `without` it."""
    log.debug("%s cannot be used", path, exc_info=error)
    if without:
        _missing.setdefault(path, without)


def missing() -> dict[str, str]:
    """Return the unusable names so far, each with what a recording lacks because of it."""
    return _missing


def say() -> None:
    """Print one line about unusable names that have not been reported yet."""
    new = {path: without for path, without in _missing.items() if path not in _reported}
    if not new:
        return
    _reported.update(new)
    lacking = "; ".join(dict.fromkeys(new.values()))
    print(
        f"pyprof: torch {torch.__version__} lacks or has changed {', '.join(new)}. Not recorded: {lacking}.",
        file=sys.stderr,
    )


def facts() -> dict[str, str]:
    """Return the rows of PYPROF_META: the unusable names, and what the recording lacks."""
    return {"torch.missing": "; ".join(f"{path} ({without})" for path, without in _missing.items())} if _missing else {}


def unsupported() -> str:
    """Return why this torch cannot be recorded at all, "" if it can."""
    match = re.match(r"(\d+)\.(\d+)", str(torch.__version__))
    if match is None or (int(match[1]), int(match[2])) >= OLDEST:  # try an unreleased build
        return ""
    return (
        f"recording needs torch {OLDEST[0]}.{OLDEST[1]} or later, and this is torch {torch.__version__}. "
        "Update torch, or record with torch.profiler and open its trace with PyProf."
    )


def never() -> bool:
    """Return False; stands in for a function that tells whether torch is doing something."""
    return False


class Refused:
    """Stand-in for a guard that torch no longer has: the reads it would guard are not done."""

    def __enter__(self) -> None:
        raise LookupError("PyProf does not support the guard of this torch")

    def __exit__(self, *error: object) -> None:
        """Do nothing; never entered."""


def _enter(guard: Any) -> None:
    with guard():
        pass


# Names used by several modules. A name used by one module is looked up there.
is_tracing = look_up("torch._C._is_tracing", "whether torch.jit.trace runs", never, check=lambda tracing: tracing())
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
# Inside these guards the program's own modes and tensor subclasses do not see PyProf's reads.
DisableTorchFunction = look_up(
    "torch._C.DisableTorchFunction",
    "parameters, and calls under a mode of the program",
    Refused,
    check=_enter,
)
DisableTorchFunctionSubclass = look_up(
    "torch._C.DisableTorchFunctionSubclass", "calls on subclasses of tensors", Refused, check=_enter
)
