# SPDX-License-Identifier: Apache-2.0
"""Identity of this process within a run: the rank that its file is named after, or a helper that stays quiet.

The rank is that of torch.distributed's default group, if it has more than one member; else RANK, if WORLD_SIZE is
above 1 (torchrun). It is read when the file is written, and a group that was destroyed before is remembered, so it
does not matter whether the group or PyProf comes first.

>>> named("runs/net.sqlite", 3)
'runs/net.rank3.sqlite'
"""

from __future__ import annotations

import functools
import multiprocessing
import os
import re
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import torch

from pyprof.capture.core.internal_errors import tolerated
from pyprof.capture.core.state import Until, owned
from pyprof.capture.core.torch_internals import look_up
from pyprof.capture.instrument.attribute_registry import Registry

# The output of `pyprof run`, for ranks that the script starts with torch.multiprocessing. PYPROF_OUTPUT would not
# work: any other program that the script starts would use the name as well.
OUTPUT_OF_RUN = "PYPROF_OUTPUT_OF_RUN"
# Facts of the default group, of the last one if it was destroyed.
_group: dict[str, Any] = owned({}, Until.SHUTDOWN)


def install(registry: Registry) -> None:
    """Follow the default group of torch.distributed until the registry is undone.

    It hooks the function that init_process_group and destroy_process_group call, which also works for scripts that
    imported these names.
    """
    if not torch.distributed.is_available():
        return
    lost = "the rank of a process whose group is destroyed before its file is written"
    module = look_up("torch.distributed.distributed_c10d", lost)
    original = look_up("torch.distributed.distributed_c10d._update_default_pg", lost)
    if module is None or original is None:
        return

    @functools.wraps(original)
    def call(group: Any) -> Any:
        _note()  # of a group that is about to be destroyed
        result = original(group)
        _note()
        return result

    registry.replace(module, "_update_default_pg", call)


def _note() -> None:
    distributed: Any = torch.distributed
    with tolerated():  # never into the user's code
        if distributed.is_available() and distributed.is_initialized():
            _group["rank"] = distributed.get_rank()
            _group["world_size"] = distributed.get_world_size()
            _group["backend"] = distributed.get_backend()


def group() -> dict[str, Any]:
    """Return rank, world size and backend of the current or last default group; empty without one."""
    _note()
    return dict(_group)


def rank() -> int | None:
    """Return the rank of this process, None in a run of one."""
    facts = group()
    if facts.get("world_size", 1) > 1:
        return int(facts["rank"])
    own, size = os.environ.get("RANK", ""), os.environ.get("WORLD_SIZE", "")
    return int(own) if own.isdecimal() and size.isdecimal() and int(size) > 1 else None


def is_rank() -> bool:
    """Return whether a child of multiprocessing is a rank itself, and not a helper that inherited the variables of
    one."""
    return group().get("world_size", 1) > 1 or (rank() is not None and os.environ.get("RANK") != _launched_as())


def _launched_as() -> str | None:
    """Return RANK at the start of this program, or in a forked process of its parent; None if unknown."""
    with suppress(OSError), open("/proc/self/environ", "rb") as file:
        for variable in file.read().split(b"\0"):
            if variable.startswith(b"RANK="):
                return os.fsdecode(variable[5:])
    return None


def named(path: str, number: int | None) -> str:
    """Return the file name of a rank."""
    if number is None:
        return path
    root, extension = os.path.splitext(path)
    return f"{root}.rank{number}{extension}"


Files = dict[str, tuple[int, int]]  # by name: inode and time of modification, which identify the contents


def files(path: str) -> Files:
    """Return the recordings of ranks that are named after a path.

    >>> files("/nowhere/net.sqlite")
    {}
    """
    root, extension = os.path.splitext(path)
    folder, stem = os.path.split(root)
    pattern = re.compile(re.escape(f"{stem}.rank") + r"\d+(?:\.\d+)?" + re.escape(extension) + r"\Z")
    recordings = {}
    with suppress(OSError), os.scandir(folder or ".") as entries:
        for entry in entries:
            if pattern.match(entry.name):
                with suppress(OSError):
                    status = entry.stat()
                    recordings[entry.name] = status.st_ino, status.st_mtime_ns
    return recordings


def is_child() -> bool:
    """Return whether multiprocessing started this process: a worker of a loader or a pool, or a rank."""
    return multiprocessing.parent_process() is not None


def imports_script() -> bool:
    """Return whether a child of multiprocessing is still importing the script, before it runs its target.

    Output of a module while it is imported was meant for the parent.
    """
    return getattr(multiprocessing.process.current_process(), "_inheriting", False)


def when_imported(begin: Callable[[], object]) -> None:
    """Call `begin` before a child of multiprocessing that imports the script again runs its target.

    Spawned children do not run the callbacks of `multiprocessing.util.register_after_fork`, as others do.
    """
    spawned: Any = multiprocessing.context.SpawnProcess
    original = vars(spawned).get("_after_fork")
    if original is None:
        return

    def after_fork() -> None:
        spawned._after_fork = original
        spawned._after_fork()
        begin()

    spawned._after_fork = staticmethod(after_fork)


def is_helper() -> bool:
    """Return whether this is a worker of a loader or a pool, which are daemons, or has not reached its target yet."""
    return is_child() and (imports_script() or bool(multiprocessing.process.current_process().daemon))


def inherited_output() -> str | None:
    """Return the file named by the environment, None in a helper."""
    if is_helper():
        return None
    return os.environ.get("PYPROF_OUTPUT") or (os.environ.get(OUTPUT_OF_RUN) if is_child() else None)
