# SPDX-License-Identifier: Apache-2.0
"""Collectives among the kernels: the operation, the bytes, the participants. The table `collective`.

What a recording stores with a kernel comes first, then the description of the call that launched it (c10d's
`record_param_comms`, the range `nccl:all_reduce`); without either, the kernel's own name gives the collective.
"""

from __future__ import annotations

import re

import numpy as np
import pyarrow as pa

from pyprof.core import intervals
from pyprof.core.model import KERNEL, Collective, Ints, Trace
from pyprof.costs import kernels
from pyprof.parse.rows import Linked
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
    """Return, by row, the known description of the collective that each communication kernel is."""
    table = linked.rows
    collective = np.array([kernels.kind(name) in kernels.COMMUNICATION for name in table.names] or [False], bool)
    index = np.flatnonzero((table.kind == KERNEL) & collective[table.name])
    if not len(index):
        return {}
    descriptions = trace.collectives
    of_event = {gpu: i for i, gpu in enumerate(descriptions.gpu.tolist()) if gpu >= 0}
    of_call = _of_calls(trace, linked.row_launch[index]).tolist()
    out = {}
    for row, event, call in zip(index.tolist(), linked.row_gpu[index].tolist(), of_call):
        place = of_event.get(event, call)
        out[row] = descriptions.what[place] if place >= 0 else Collective(name_of(table.names[table.name[row]]))
    return out


def _of_calls(trace: Trace, launch: Ints) -> Ints:
    """Return the innermost description around each launch, -1 without one."""
    descriptions, out = trace.collectives, np.full(len(launch), _NONE)
    of_thread = np.flatnonzero(descriptions.gpu < 0)
    launched = np.flatnonzero(launch >= 0)
    launches = {t: launched[places] for t, places in intervals.groups(trace.launches.thread[launch[launched]])}
    for thread, places in intervals.groups(descriptions.thread[of_thread]):
        own_launches = launches.get(thread)
        if own_launches is None:
            continue
        own = of_thread[places]
        order = own[intervals.order_by(descriptions.start[own], -descriptions.end[own], own)]
        nesting, _ = intervals.nested(descriptions.start[order], descriptions.end[order], trace.slack)
        place = nesting.innermost(trace.launches.start[launch[own_launches]])
        out[own_launches] = np.where(place >= 0, order[place], _NONE)
    return out


def name_of(kernel: str) -> str:
    """Return the collective that a kernel's name gives, `collective` if it gives none.

    >>> name_of("ncclKernel_AllReduce_RING_LL_Sum_float(ncclWorkElem)"), name_of("ncclDevKernel_Generic(...)")
    ('all_reduce', 'collective')
    >>> name_of("void multimem_all_gather_kernel<16>(P)"), name_of("void vllm::cross_device_reduce_1stage<float, 8>(P)")
    ('all_gather', 'all_reduce')
    """
    if _REDUCE in kernel:
        return "all_reduce"
    match = _OF_KERNEL.search(kernel.replace("_", ""))
    return _NAMES[match[0].lower()] if match else "collective"


def table(collectives: dict[int, Collective], row: Ints, event: Ints) -> pa.Table:
    """Return rows of the table: the collectives of given rows, with the ids of their events."""
    kinds = {"event": int, "name": str, "sent_bytes": int, "received_bytes": int, "dtype": str, "process_group": str,
             "size": int, "seq": int}  # fmt: skip
    return rows(kinds, ((identity, *collectives[number]) for number, identity in zip(row.tolist(), event.tolist())))
