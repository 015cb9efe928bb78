# SPDX-License-Identifier: Apache-2.0
"""Layouts of CUPTI's activity records, as numpy dtypes.

New versions append fields to a record; existing fields keep their offsets. So each kind has one table
of fields, all in its oldest record, and a size per version of CUPTI. Sizes from the loaded library take precedence
(`decode.py`).

Source: cupti_activity.h and cupti_activity_deprecated.h as published with CUDA 12.1 to 13.4 (sizes and offsets were
compared with those of a C compiler, and with the dtypes of cupti-python 13.4).
"""

from __future__ import annotations

from functools import cache

import numpy as np

# CUpti_ActivityKind
MEMCPY, MEMSET, RUNTIME, DRIVER, KERNEL, PEER_COPY, SYNC = 1, 2, 5, 4, 10, 22, 38

OLDEST = 20  # CUPTI of CUDA 12.2: before that one version number stood for two layouts

_KERNEL = """
0 i4 kind, 6 u2 registers_per_thread, 16 u8 start, 24 u8 end, 40 u4 device_id, 44 u4 context_id, 48 u4 stream_id,
52 i4 grid_x, 56 i4 grid_y, 60 i4 grid_z, 64 i4 block_x, 68 i4 block_y, 72 i4 block_z, 76 i4 static_shared_memory,
80 i4 dynamic_shared_memory, 84 u4 local_memory_per_thread, 92 u4 correlation_id, 96 i8 grid_id, 104 u8 name,
136 u1 launch_type, 140 u4 shared_memory_executed, 144 u8 graph_node_id, 156 u4 graph_id, 176 u4 cluster_x,
180 u4 cluster_y, 184 u4 cluster_z, 188 u4 cluster_scheduling_policy, 192 u8 local_memory_total_v2,
200 u4 max_potential_cluster_size, 204 u4 max_active_clusters
"""
_COPY = """
0 i4 kind, 4 u1 copy_kind, 5 u1 src_kind, 6 u1 dst_kind, 8 u8 bytes, 16 u8 start, 24 u8 end, 32 u4 device_id,
36 u4 context_id, 40 u4 stream_id, 44 u4 correlation_id, 64 u8 graph_node_id, 72 u4 graph_id
"""
_PEER_COPY = """
0 i4 kind, 4 u1 copy_kind, 5 u1 src_kind, 6 u1 dst_kind, 8 u8 bytes, 16 u8 start, 24 u8 end, 32 u4 device_id,
36 u4 context_id, 40 u4 stream_id, 44 u4 src_device_id, 48 u4 src_context_id, 52 u4 dst_device_id,
56 u4 dst_context_id, 60 u4 correlation_id, 72 u8 graph_node_id, 80 u4 graph_id
"""
_SET = """
0 i4 kind, 4 u4 value, 8 u8 bytes, 16 u8 start, 24 u8 end, 32 u4 device_id, 36 u4 context_id, 40 u4 stream_id,
44 u4 correlation_id, 50 u2 memory_kind, 64 u8 graph_node_id, 72 u4 graph_id
"""
_API = """
0 i4 kind, 4 u4 cbid, 8 u8 start, 16 u8 end, 24 u4 process_id, 28 u4 thread_id, 32 u4 correlation_id,
36 u4 return_value
"""
_SYNC = """
0 i4 kind, 4 i4 type, 8 u8 start, 16 u8 end, 24 u4 correlation_id, 28 u4 context_id, 32 u4 stream_id,
36 u4 cuda_event_id
"""
_FIELDS = {
    KERNEL: _KERNEL, MEMCPY: _COPY, PEER_COPY: _PEER_COPY, MEMSET: _SET, RUNTIME: _API, DRIVER: _API, SYNC: _SYNC,
}  # fmt: skip
NAMES = {  # as in the header, for messages
    KERNEL: "CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL", MEMCPY: "CUPTI_ACTIVITY_KIND_MEMCPY",
    PEER_COPY: "CUPTI_ACTIVITY_KIND_MEMCPY2", MEMSET: "CUPTI_ACTIVITY_KIND_MEMSET",
    RUNTIME: "CUPTI_ACTIVITY_KIND_RUNTIME", DRIVER: "CUPTI_ACTIVITY_KIND_DRIVER",
    SYNC: "CUPTI_ACTIVITY_KIND_SYNCHRONIZATION",
}  # fmt: skip
# First version of CUPTI -> size of the record from there on, in bytes.
_SIZES: dict[int, dict[int, int]] = {
    KERNEL: {20: 208, 130000: 216, 130100: 224, 130300: 232, 130400: 248},
    MEMCPY: {20: 88, 26: 96, 130400: 112},
    PEER_COPY: {20: 96},
    MEMSET: {20: 88, 130400: 104},
    RUNTIME: {20: 40},
    DRIVER: {20: 40},
    SYNC: {20: 40, 26: 56},
}


def sizes(version: int) -> dict[int, int]:
    """Return the record size in bytes of each kind for a CUPTI version (as cuptiGetVersion returns it). Versions newer
    than the table get its last entry.

    >>> sizes(130001)[KERNEL], sizes(24)[SYNC]
    (216, 40)
    """
    return {kind: table[max(first for first in table if first <= version)] for kind, table in _SIZES.items()}


@cache
def dtype(kind: int, size: int) -> np.dtype[np.void]:
    """Return the fields that are read of a record of that size; `required` is the smallest size that holds them."""
    fields = [field.split() for field in _FIELDS[kind].replace("\n", " ").split(",")]
    return np.dtype(
        {
            "names": [name for _, _, name in fields],
            "formats": [f"<{code}" for _, code, _ in fields],
            "offsets": [int(offset) for offset, _, _ in fields],
            "itemsize": size,
        }
    )


def required(kind: int) -> int:
    """Return the size of the oldest known record; it contains every field that is read."""
    return min(_SIZES[kind].values())
