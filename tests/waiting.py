# SPDX-License-Identifier: Apache-2.0
"""Waiting for what other threads and processes do, however long that takes: the machine may have other work."""

from __future__ import annotations

import time
from collections.abc import Callable

HANG = 600.0  # seconds after which something hangs; a sentence is better than a run that never ends


def until(happened: Callable[[], object]) -> None:
    """Return when it has happened."""
    end = time.monotonic() + HANG
    while not happened():
        assert time.monotonic() < end, "it did not happen"
        time.sleep(0.005)
