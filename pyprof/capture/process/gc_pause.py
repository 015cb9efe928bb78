# SPDX-License-Identifier: Apache-2.0
"""Many small objects are made when a recording is read and written, and none is garbage in a cycle."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def uncollected() -> Iterator[None]:
    """Keep Python from looking for garbage: each time it would look at all of torch."""
    collecting = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if collecting:
            gc.enable()
