# SPDX-License-Identifier: Apache-2.0
"""Collectives among the kernels: what was exchanged, how many bytes, by whom. The table `collective`.

What a recording says of a kernel itself comes first, then what it says of the call that launched it (c10d's
`record_param_comms`, the range `nccl:all_reduce`); without either the kernel's own name tells which collective it is.
"""

from __future__ import annotations

import re

import numpy as np
import pyarrow as pa

from pyprof import intervals
from pyprof.model import KERNEL, Collective, Ints, Trace
from pyprof.parse.rows import Linked
from pyprof.prof import kernels
from pyprof.store.write.columns import rows

_NONE = -1
# As NCCL and RCCL name their kernels (ncclDevKernel_AllReduce_Sum_f32_RING_LL) -> as c10d names collectives.
_NAMES = {
    "allreduce": "all_reduce", "allgather": "all_gather", "reducescatter": "reduce_scatter", "alltoall": "all_to_all",
    "broadcast": "broadcast", "sendrecv": "send_recv", "reduce": "reduce", "gather": "gather", "scatter": "scatter",
}  # fmt: skip
_OF_KERNEL = re.compile("|".join(_NAMES), re.I)
_REDUCE = "cross_device_reduce"  # vLLM's, SGLang's and AITER's all-reduce


def of_rows(trace: Trace, linked: Linked) -> dict[int, Collective]:
    """What is known of the collective that each communication kernel is, by row."""
    made = linked.rows
    collective = np.array(
        [kernels.kind(name) in kernels.COMMUNICATION for name in made.names] or [False], bool
    )
    found = np.flatnonzero((made.kind == KERNEL) & collective[made.name])
    if not len(found):
        return {}
    known = trace.collectives
    of_event = {gpu: i for i, gpu in enumerate(known.gpu.tolist()) if gpu >= 0}
    of_call = _of_calls(trace, linked.row_launch[found]).tolist()
    out = {}
    for row, event, call in zip(found.tolist(), linked.row_gpu[found].tolist(), of_call):
        place = of_event.get(event, call)
        out[row] = known.what[place] if place >= 0 else Collective(name_of(made.names[made.name[row]]))
    return out


def _of_calls(trace: Trace, launch: Ints) -> Ints:
    """The innermost description around each launch, -1 where there is none."""
    known, out = trace.collectives, np.full(len(launch), _NONE)
    of_thread = np.flatnonzero(known.gpu < 0)
    launched = np.flatnonzero(launch >= 0)
    asked = {t: launched[places] for t, places in intervals.groups(trace.launches.thread[launch[launched]])}
    for thread, places in intervals.groups(known.thread[of_thread]):
        here = asked.get(thread)
        if here is None:
            continue
        mine = of_thread[places]
        order = mine[intervals.order_by(known.start[mine], -known.end[mine], mine)]
        nesting, _ = intervals.nested(known.start[order], known.end[order], trace.slack)
        place = nesting.innermost(trace.launches.start[launch[here]])
        out[here] = np.where(place >= 0, order[place], _NONE)
    return out


def name_of(kernel: str) -> str:
    """The collective that a kernel's name tells, `collective` where it tells none.

    >>> name_of("ncclKernel_AllReduce_RING_LL_Sum_float(ncclWorkElem)"), name_of("ncclDevKernel_Generic(...)")
    ('all_reduce', 'collective')
    >>> name_of("void multimem_all_gather_kernel<16>(P)"), name_of("void vllm::cross_device_reduce_1stage<float, 8>(P)")
    ('all_gather', 'all_reduce')
    """
    if _REDUCE in kernel:
        return "all_reduce"
    found = _OF_KERNEL.search(kernel.replace("_", ""))
    return _NAMES[found[0].lower()] if found else "collective"


def table(found: dict[int, Collective], row: Ints, event: Ints) -> pa.Table:
    """Some rows of the table: collectives of rows, with the ids of their events."""
    kinds = {"event": int, "name": str, "sent": int, "received": int, "dtype": str, "process_group": str, "size": int,
             "seq": int}  # fmt: skip
    return rows(kinds, ((identity, *found[one]) for one, identity in zip(row.tolist(), event.tolist())))
