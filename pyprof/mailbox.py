# SPDX-License-Identifier: Apache-2.0
"""A page of memory through which `pyprof trigger` asks a running process for a window, and is answered.

It is a file without a name in the process that may be asked (`memfd_create`), which others find under /proc/PID/fd: so
only the same user (or root) can ask, a process that never made one is known at once, nothing stays when it ends however
that happens, and a look costs the process one byte of its own memory. A signal would do none of this: SIGUSR2 ends a
process that has no handler, and the handler belongs to the program.

Byte 0 is the state, then comes the length of a JSON text and the text: the request, later the answer. Who asks holds a
lock of the file (flock). Linux only.
"""

from __future__ import annotations

import json
import mmap
import os
from contextlib import suppress
from typing import Any

from pyprof.errors import CaptureError

IDLE, ASKED, RECORDING, DONE, REFUSED = range(5)
_NAME, _SIZE, _HEAD = "pyprof-trigger", 16384, 8
_LINK = f"/memfd:{_NAME} (deleted)"


class Mailbox:
    """The page, in the process that made it or in one that asks it."""

    def __init__(self, file: int):
        self.file = file
        self.page = mmap.mmap(file, _SIZE)

    @property
    def state(self) -> int:
        """What the page says: IDLE, ASKED, RECORDING, DONE or REFUSED."""
        return self.page[0]

    def put(self, state: int, **content: Any) -> None:
        """Say something: the text first, for who looks at the state."""
        text = json.dumps(content).encode()[: _SIZE - _HEAD]
        self.page[_HEAD : _HEAD + len(text)] = text
        self.page[4:_HEAD] = len(text).to_bytes(4, "little")
        self.page[0] = state

    def content(self) -> Any:
        """What was said last. Raises ValueError for what is no text of ours."""
        return json.loads(self.page[_HEAD : _HEAD + int.from_bytes(self.page[4:_HEAD], "little")])

    def close(self) -> None:
        """Let go of the page; of the last one to hold it, it is gone."""
        self.page.close()
        with suppress(OSError):
            os.close(self.file)


def make() -> Mailbox | None:
    """The mailbox of this process; None where the system has no such files, or a limit for all files forbids it."""
    try:
        file = os.memfd_create(_NAME)
    except (AttributeError, OSError):
        return None
    try:
        os.ftruncate(file, _SIZE)
        return Mailbox(file)
    except OSError:
        os.close(file)
        return None


def of(pid: int) -> Mailbox | None:
    """The mailbox of another process, None if it has none. Raises CaptureError, a sentence about the process."""
    if not os.path.isdir("/proc/self/fd"):
        raise CaptureError("a running process can be asked on Linux only.")
    folder = f"/proc/{pid}/fd"
    try:
        owner = os.stat(f"/proc/{pid}").st_uid
        with open(f"/proc/{pid}/stat") as stat:
            if stat.read().rpartition(")")[2].split()[0] in "ZX":
                raise CaptureError(f"process {pid} has ended.")
        for name in os.listdir(folder):
            with suppress(FileNotFoundError):
                if os.readlink(f"{folder}/{name}") == _LINK:
                    return Mailbox(os.open(f"{folder}/{name}", os.O_RDWR | os.O_CLOEXEC))
    except (FileNotFoundError, ProcessLookupError):
        raise CaptureError(f"there is no process {pid}.") from None
    except PermissionError:
        whose = "is protected by the system" if owner == os.getuid() else f"belongs to {_user(owner)}"
        raise CaptureError(f"process {pid} {whose}: ask it as its owner, or as root.") from None
    return None


def _user(number: int) -> str:
    import pwd

    try:
        return pwd.getpwuid(number).pw_name
    except KeyError:
        return f"user {number}"
