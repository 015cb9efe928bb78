# SPDX-License-Identifier: Apache-2.0
"""Shared page of memory through which `pyprof trigger` requests a window from a running process, and gets the answer.

It is a file without a name in the target process (`memfd_create`), which others find under /proc/PID/fd: so only the
same user (or root) can send a request, a process without a page is recognized immediately, nothing is left behind
however the process ends, and a check costs the process one byte of its own memory. A signal has none of these
advantages: SIGUSR2 ends a process that has no handler, and the handler belongs to the program.

Byte 0 is the state, followed by the length of a JSON text and the text: the request, later the answer. The sender
holds a lock of the file (flock). Linux only.
"""

from __future__ import annotations

import json
import mmap
import os
from contextlib import suppress
from typing import Any

from pyprof.core.errors import CaptureError

IDLE, REQUESTED, RECORDING, DONE, REFUSED = range(5)
_NAME, _SIZE, _HEAD = "pyprof-trigger", 16384, 8
_LINK = f"/memfd:{_NAME} (deleted)"


class Mailbox:
    """The page, in the process that created it or in one that sends a request."""

    def __init__(self, file: int):
        self.file = file
        self.page = mmap.mmap(file, _SIZE)

    @property
    def state(self) -> int:
        """State of the page: IDLE, REQUESTED, RECORDING, DONE or REFUSED."""
        return self.page[0]

    def put(self, state: int, **content: Any) -> None:
        """Write a message: the text before the state, for readers that poll the state."""
        text = json.dumps(content).encode()[: _SIZE - _HEAD]
        self.page[_HEAD : _HEAD + len(text)] = text
        self.page[4:_HEAD] = len(text).to_bytes(4, "little")
        self.page[0] = state

    def content(self) -> Any:
        """Return the last message. Raises ValueError for an invalid text."""
        return json.loads(self.page[_HEAD : _HEAD + int.from_bytes(self.page[4:_HEAD], "little")])

    def close(self) -> None:
        """Release the page; it disappears with its last user."""
        self.page.close()
        with suppress(OSError):
            os.close(self.file)


def make() -> Mailbox | None:
    """Create the mailbox of this process; return None if the system does not support it, or a file size limit forbids
    it."""
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
    """Return the mailbox of another process, None if it has none. Raises CaptureError with a sentence about the
    process."""
    if not os.path.isdir("/proc/self/fd"):
        raise CaptureError("a running process can be triggered on Linux only.")
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
        reason = "is protected by the system" if owner == os.getuid() else f"belongs to {_user(owner)}"
        raise CaptureError(f"process {pid} {reason}: trigger it as its owner, or as root.") from None
    return None


def _user(number: int) -> str:
    import pwd

    try:
        return pwd.getpwuid(number).pw_name
    except KeyError:
        return f"user {number}"
