# SPDX-License-Identifier: Apache-2.0
"""Which process of a run this is: the rank that its file is named after, or a helper that stays quiet.

The rank is that of torch.distributed's default group, if it has more than one member; else RANK, where WORLD_SIZE says
that there are several (torchrun). It is asked for when the file is written, and a group that was destroyed before that
is remembered, so it does not matter whether the group or PyProf comes first.

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

from pyprof.capture.core.torch_internals import look_up
from pyprof.capture.instrument.patch import Registry

# What `pyprof run` records into, for ranks that the script starts with torch.multiprocessing. PYPROF_OUTPUT would not
# do: any other program that the script starts would take the name as well.
OUTPUT_OF_RUN = "PYPROF_OUTPUT_OF_RUN"
_group: dict[str, Any] = {}  # facts of the default group, of the last one if there is none any more


def install(registry: Registry) -> None:
    """Follow the default group of torch.distributed until the registry is undone.

    By what init_process_group and destroy_process_group call, which also works for scripts that imported these names.
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
        _note()  # of a group that is about to go
        result = original(group)
        _note()
        return result

    registry.replace(module, "_update_default_pg", call)


def forget() -> None:
    """Back to before `init`."""
    _group.clear()


def _note() -> None:
    distributed: Any = torch.distributed
    with suppress(Exception):  # never into the user's code
        if distributed.is_available() and distributed.is_initialized():
            _group["rank"] = distributed.get_rank()
            _group["world_size"] = distributed.get_world_size()
            _group["backend"] = distributed.get_backend()


def group() -> dict[str, Any]:
    """Rank, world size and backend of the default group, that there is or was; empty without one."""
    _note()
    return dict(_group)


def rank() -> int | None:
    """The rank of this process, None in a run of one."""
    found = group()
    if found.get("world_size", 1) > 1:
        return int(found["rank"])
    own, size = os.environ.get("RANK", ""), os.environ.get("WORLD_SIZE", "")
    return int(own) if own.isdecimal() and size.isdecimal() and int(size) > 1 else None


def is_rank() -> bool:
    """Whether a child of multiprocessing is a rank itself, and not a helper that has the variables of one."""
    return group().get("world_size", 1) > 1 or (
        rank() is not None and os.environ.get("RANK") != _launched_as()
    )


def _launched_as() -> str | None:
    """RANK as it was when this program, or in a forked process its parent's, was started; None if that is not known."""
    with suppress(OSError), open("/proc/self/environ", "rb") as file:
        for each in file.read().split(b"\0"):
            if each.startswith(b"RANK="):
                return os.fsdecode(each[5:])
    return None


def named(path: str, number: int | None) -> str:
    """The file of a rank."""
    if number is None:
        return path
    root, extension = os.path.splitext(path)
    return f"{root}.rank{number}{extension}"


Files = dict[
    str, tuple[int, int]
]  # by name: what tells one contents from another, inode and time of the change


def files(path: str) -> Files:
    """The recordings of ranks that are named after a path.

    >>> files("/nowhere/net.sqlite")
    {}
    """
    root, extension = os.path.splitext(path)
    folder, stem = os.path.split(root)
    mine = re.compile(re.escape(f"{stem}.rank") + r"\d+(?:\.\d+)?" + re.escape(extension) + r"\Z")
    found = {}
    with suppress(OSError), os.scandir(folder or ".") as entries:
        for entry in entries:
            if mine.match(entry.name):
                with suppress(OSError):
                    status = entry.stat()
                    found[entry.name] = status.st_ino, status.st_mtime_ns
    return found


def is_child() -> bool:
    """Whether multiprocessing started this process: a worker of a loader or a pool, or a rank."""
    return multiprocessing.parent_process() is not None


def imports_script() -> bool:
    """Whether a child of multiprocessing is only importing the script again, before it runs what it was started for.

    What a module says while it is imported was meant for the parent.
    """
    return getattr(multiprocessing.process.current_process(), "_inheriting", False)


def when_imported(begin: Callable[[], object]) -> None:
    """In a child of multiprocessing that imports the script again: call `begin` before it runs what it was started for.

    Spawned ones do not run what `multiprocessing.util.register_after_fork` was told, as others do.
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
    """Whether this is a worker of a loader or a pool, which are daemons, or has not come to what it was started for."""
    return is_child() and (imports_script() or bool(multiprocessing.process.current_process().daemon))


def inherited_output() -> str | None:
    """The file that the environment names, for who is no helper."""
    if is_helper():
        return None
    return os.environ.get("PYPROF_OUTPUT") or (os.environ.get(OUTPUT_OF_RUN) if is_child() else None)
