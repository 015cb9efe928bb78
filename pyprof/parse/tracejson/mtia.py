# SPDX-License-Identifier: Apache-2.0
"""Copies by MTIA: requests to its DMA engine, which a trace lists among the accelerator's events.

    "cat": "mtia_ccp_events", "name": "dma_request", "args": {"direction": "HOST_TO_DEVICE", "size": 12513104, ...}

They are named like copies by CUDA. The trace does not say whether the host's memory is pinned.
"""

from __future__ import annotations

from collections.abc import Sequence

from pyprof.parse.tracejson.events import Event
from pyprof.parse.tracejson.fields import DeviceArgs

_NAMES = {
    "HOST_TO_DEVICE": "Memcpy HtoD (Host -> Device)",
    "DEVICE_TO_HOST": "Memcpy DtoH (Device -> Host)",
    "DEVICE_TO_DEVICE": "Memcpy DtoD (Device -> Device)",
}


def copies(events: Sequence[Event], decoded: Sequence[DeviceArgs]) -> dict[int, str]:
    """Return the names of the copies, by index."""
    return {
        index: _NAMES[args.direction]
        for index, args in enumerate(decoded)
        if isinstance(args.direction, str) and args.direction in _NAMES and events[index].name == "dma_request"
    }
