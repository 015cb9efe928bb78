# SPDX-License-Identifier: Apache-2.0
"""Classification of GPU events as communication: kernels of collectives and of messages, and copies between devices.

The kind of an event's name decides (`pyprof.prof.kernels`), for aggregation, reports and rules alike. A copy between
devices is communication though no kernel runs; `kernel_busy` counts kernels only.
"""

from __future__ import annotations

import numpy as np

from pyprof.model import Bools
from pyprof.prof.kernels import COMMUNICATION
from pyprof.store.files import Store


def names(store: Store) -> Bools:
    """Return, by number of a kernel's or copy's name, whether such events are communication."""
    return store.cached("communication", lambda: _names(store))


def _names(store: Store) -> Bools:
    kinds = dict(store.rows("select id, kind from kernel_name"))
    return np.array([kinds.get(i) in COMMUNICATION for i in range(max(kinds, default=0) + 1)], bool)
