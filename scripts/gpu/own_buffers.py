# SPDX-License-Identifier: Apache-2.0
"""Let the CUPTI collector work with a torch that has no buffers for it (before 2.13), for measurements only; keep the
raw buffers for tests.

Needs POOL=path of pool.so. With RAW=folder every buffer goes there, with the texts that its records point to.
"""

from __future__ import annotations

import ctypes
import json
import os
from pathlib import Path
from typing import Any

from pyprof.capture.collectors.cupti import library, pool

texts: dict[int, str] = {}
calls: dict[str, str] = {}


def install() -> None:
    native = ctypes.CDLL(os.environ["POOL"])
    for name in ("request", "complete", "clock", "now", "address", "next"):
        getattr(native, f"pool_{name}").restype = ctypes.c_uint64

    def take() -> tuple[int, int]:
        address = native.pool_address()
        return address, native.pool_next()

    pool._requested, pool._completed = native.pool_request, native.pool_complete
    pool._clock_address, pool._now = native.pool_clock, native.pool_now
    pool._allocated, pool._pending, pool._next = native.pool_allocated, native.pool_pending, take
    pool._configure, pool._reset = (
        lambda size: native.pool_configure(ctypes.c_size_t(size)),
        native.pool_reset,
    )
    if "RAW" in os.environ:
        _keep_raw(Path(os.environ["RAW"]))


def _keep_raw(folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    plain_take, plain_text, plain_name = pool.Pool.take, library.text, library.Library.call_name

    def take(self: pool.Pool) -> list[Any]:
        out = plain_take(self)
        for buffer in out:
            number = len(list(folder.glob("*.bin")))
            (folder / f"{number}.bin").write_bytes(buffer.data[: buffer.valid].tobytes())
        return out

    def text(address: int) -> str:
        texts[address] = plain_text(address)
        return texts[address]

    def call_name(self: library.Library, driver: bool, number: int) -> str:
        name = plain_name(self, driver, number)
        calls[f"{'driver' if driver else 'runtime'} {number}"] = name
        return name

    pool.Pool.take, library.text, library.Library.call_name = take, text, call_name


def save(folder: Path, **more: Any) -> None:
    (folder / "names.json").write_text(json.dumps({"texts": texts, "calls": calls, **more}, indent=0))
