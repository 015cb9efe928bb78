# SPDX-License-Identifier: Apache-2.0
"""libcupti through ctypes: locating it, its functions, and its errors as messages.

The library that torch has loaded is preferred: two copies in one process conflict. Nothing in it is called before
the driver (libcuda.so.1) is loaded: without one most functions return 999, and some releases crash.

Source of the prototypes: cupti_activity.h, cupti_callbacks.h, cupti_result.h and cupti_version.h of the CUDA
Toolkit.
"""

from __future__ import annotations

import ctypes
import os
import re
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

from pyprof.core.errors import WHERE, CaptureError, install

MAX_LIMIT_REACHED = 12
_PERMISSION = (35, 40)  # CUPTI_ERROR_INSUFFICIENT_PRIVILEGES, ..._VIRTUALIZED_DEVICE_INSUFFICIENT_PRIVILEGES
_RUNTIME_DOMAIN, _DRIVER_DOMAIN = 2, 1  # CUpti_CallbackDomain
SYSTEM_THREADS = 1  # CUPTI_ACTIVITY_THREAD_ID_TYPE_SYSTEM

# The same text is in docs/troubleshooting.md.
PERMISSION = (
    "the user running this program does not have permission to access NVIDIA GPU performance counters. "
    "For one run: start the program with `sudo`, or its container with `docker run --privileged --gpus all`. "
    "For good, in this order: `sudo systemctl isolate multi-user`, "
    "`sudo modprobe -r nvidia_uvm nvidia_drm nvidia_modeset nvidia-vgpu-vfio nvidia`, "
    "`sudo modprobe nvidia NVreg_RestrictProfilingToAdminUsers=0`, `sudo systemctl isolate graphical`."
)


class CuptiError(CaptureError):
    """A CUPTI function failed."""

    def __init__(self, function: str, code: int, name: str):
        self.code = code
        super().__init__(PERMISSION if code in _PERMISSION else f"{function} failed with {name}")


class Library:
    """Wrapper of the libcupti functions that PyProf calls. Each raises CuptiError unless its docstring says
    otherwise."""

    def __init__(self, path: str):
        self.path = path
        try:
            self._lib: Any = ctypes.CDLL(path)  # CDLL releases the GIL: flushing takes CUPTI's lock
        except OSError as error:
            raise CaptureError(f"libcupti cannot be loaded ({error})") from error

    def _call(self, function: str, *arguments: Any) -> None:
        code = self._status(function, *arguments)
        if code:
            raise CuptiError(function, code, self._name(code))

    def _status(self, function: str, *arguments: Any) -> int:
        try:
            return int(getattr(self._lib, function)(*arguments))
        except AttributeError:
            raise CaptureError(f"{self.path} has no {function}: this version of CUPTI is too old") from None

    def _name(self, code: int) -> str:
        text = ctypes.c_char_p()
        self._status("cuptiGetResultString", code, ctypes.byref(text))
        return text.value.decode() if text.value else f"error {code}"

    def version(self) -> int:
        """Return CUPTI_API_VERSION of the library."""
        out = ctypes.c_uint32()
        self._call("cuptiGetVersion", ctypes.byref(out))
        return out.value

    def register(self, requested: Any, completed: Any) -> None:
        """Register the buffer callbacks by address; they must live as long as the process."""
        self._call("cuptiActivityRegisterCallbacks", requested, completed)

    def use_clock(self, clock: Any) -> None:
        """Set the clock of all records, by the address of a function that returns the time."""
        self._call("cuptiActivityRegisterTimestampCallback", clock)

    def enable(self, kind: int) -> None:
        """Enable recording of a kind of activity."""
        self._call("cuptiActivityEnable", kind)

    def disable(self, kind: int) -> None:
        """Disable recording of a kind of activity. Does not raise."""
        self._status("cuptiActivityDisable", kind)

    def leave_out(self, driver: bool, function: int, out: bool = True) -> None:
        """Exclude a function of the runtime or the driver from recording, or include it again. Does not raise: old
        versions lack this call."""
        name = "cuptiActivityEnableDriverApi" if driver else "cuptiActivityEnableRuntimeApi"
        if hasattr(self._lib, name):
            self._status(name, ctypes.c_uint32(function), ctypes.c_uint8(not out))

    def flush(self) -> None:
        """Complete all buffers, including those with unfinished records."""
        self._call("cuptiActivityFlushAll", ctypes.c_uint32(1))

    def dropped(self) -> int:
        """Return the number of records that CUPTI dropped since the last call; 0 if it does not report it."""
        out = ctypes.c_size_t()
        code = self._status("cuptiActivityGetNumDroppedRecords", None, ctypes.c_uint32(0), ctypes.byref(out))
        return 0 if code else out.value

    def next_record(self, address: int, valid: int, place: int) -> int | None:
        """Return the offset of the record after the one at `place`, in bytes from `address`; None if that is the
        last."""
        record = ctypes.c_void_p(address + place)
        code = self._status(
            "cuptiActivityGetNextRecord",
            ctypes.c_void_p(address),
            ctypes.c_size_t(valid),
            ctypes.byref(record),
        )
        return None if code or record.value is None else record.value - address

    def call_name(self, driver: bool, number: int) -> str:
        """Return the name of a runtime or driver function, without its version suffix. Does not raise."""
        text = ctypes.c_char_p()
        domain = _DRIVER_DOMAIN if driver else _RUNTIME_DOMAIN
        code = self._status("cuptiGetCallbackName", domain, ctypes.c_uint32(number), ctypes.byref(text))
        if code or not text.value:
            return f"{'driver' if driver else 'runtime'} call {number}"
        return re.sub(r"_v\d+$", "", text.value.decode())

    def thread_ids(self, kind: int) -> int:
        """Set how calls identify their thread; return the previous setting."""
        before = ctypes.c_int()
        self._call("cuptiGetThreadIdType", ctypes.byref(before))
        self._call("cuptiSetThreadIdType", kind)
        return before.value


def text(address: int) -> str:
    """Return a C string; "?" for a null pointer."""
    if not address:
        return "?"
    return ctypes.string_at(address).decode("utf-8", "replace")


def find() -> str | None:
    """Return the path of libcupti: the copy loaded in this process, else the one from a wheel, else the system's."""
    with suppress(OSError), open("/proc/self/maps", encoding="utf-8", errors="replace") as maps:
        for line in maps:
            path = line.rsplit(None, 1)[-1]
            if os.path.basename(path).startswith("libcupti.so"):
                return path
    import importlib.util

    nvidia = importlib.util.find_spec("nvidia")
    for folder in (nvidia.submodule_search_locations or ()) if nvidia is not None else ():
        libraries = sorted(Path(folder).glob("*/lib/libcupti.so*"))
        if libraries:
            return str(libraries[-1])
    for name in ("libcupti.so.13", "libcupti.so.12", "libcupti.so"):
        try:
            ctypes.CDLL(name)
        except OSError:
            continue
        return name
    return None


def driver() -> str:
    """Return "" if the NVIDIA driver can be loaded, else the reason."""
    try:
        ctypes.CDLL("libcuda.so.1")
    except OSError as error:
        return f"no NVIDIA driver was found ({error})"
    return ""


def load(find: Callable[[], str | None] = find, driver: Callable[[], str] = driver) -> Library:
    """Load the library, ready to use. Raises CaptureError with the reason."""
    from pyprof.capture.collectors.cupti.records import OLDEST

    missing = driver()
    if missing:
        raise CaptureError(missing)
    path = find()
    if path is None:
        raise CaptureError(f"libcupti was not found; {install('cupti')} {WHERE} installs it")
    library = Library(path)
    version = library.version()
    if version < OLDEST:
        raise CaptureError(f"{path} is CUPTI {version}, older than CUDA 12.2 (CUPTI {OLDEST})")
    return library
