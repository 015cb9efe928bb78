# SPDX-License-Identifier: Apache-2.0
"""Pause of the garbage collector: reading and writing a recording creates many small objects, none in a cycle."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def gc_disabled() -> Iterator[None]:
    """Disable garbage collection: each run would traverse all of torch."""
    collecting = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if collecting:
            gc.enable()
