# SPDX-License-Identifier: Apache-2.0
"""Keys of a line, in order."""

ORIGINAL_KEYS = (
    "kShortName", "kDuration", "layer", "trace", "reprMarkers", "marker", "seqMarker", "seqId", "subSeqId", "altSeqId",
    "dir", "mod", "op", "tid", "device", "stream", "grid", "block", "kLongName",
)  # fmt: skip
OUR_KEYS = (
    "start", "end", "launchStart", "launchEnd", "correlation", "pid", "context", "registers", "sharedMemory", "module",
    "fwdThread", "graph", "phase", "kind", "call", "caller", "launcher",
)  # fmt: skip
KEYS = ORIGINAL_KEYS + OUR_KEYS
