# SPDX-License-Identifier: Apache-2.0
"""Details of a gap of a device: how long nothing ran, why, and what the host did, as in the report of idle time."""

from __future__ import annotations

import re

from pyprof.analysis.source import Source
from pyprof.marker import readable
from pyprof.timeline.around import gap_of
from pyprof.viewer.details import frames, named_texts
from pyprof.viewer.host_details import thread_label
from pyprof.viewer.models import Details, Figure, Partner
from pyprof.viewer.problems import Trouble

_ID = re.compile(r"(\d{1,7})\.(\d{1,7})\.(\d{1,12})")
_WHERE = {
    "in": "Operator in which the thread was",
    "before": "Operator that came next",
    "kernel of": "Operator of the kernel after it",
}


def parse(id: str) -> tuple[int, int, int]:
    """Return the worker, the device and the number of a gap. Raises Trouble."""
    match = _ID.fullmatch(id)
    if match is None:
        raise Trouble("missing", f"There is no gap {id!r}: expected WORKER.DEVICE.NUMBER.")
    worker, device, number = (int(part) for part in match.groups())
    return worker, device, number


def gap(source: Source, id_: str) -> Details:
    """Return the details of a gap. Raises Trouble where there is none."""
    worker, device, number = parse(id_)
    if not source.store.rows("select 1 from worker where id = ?", (worker,)):
        raise Trouble("missing", f"There is no gap {id_}: the profile has no worker {worker}.")
    one = gap_of(source.store, worker, device, number)
    if one is None:
        raise Trouble("missing", f"There is no gap {id_}: device {device} of the worker has fewer.")
    thread = source.store.rows("select tid, name from thread where id = ?", (one.thread,))
    kernel = source.store.rows(
        "select coalesce(n.short_name, n.name) from event e join kernel_name n on n.id = e.name where e.id = ?",
        (one.event,),
    )
    partners = []
    if one.event is not None and kernel:
        partners.append(Partner(relation="ended by", kind="launch", id=str(one.event), title=kernel[0][0]))
    if one.op_id is not None:
        partners.append(
            Partner(relation="operator", kind="op", id=one.op_id, title=one.operator or one.op_id)
        )
    figures = [
        Figure(
            key="start", heading="Start (ns)", value=one.start_ns, unit="ns",
            text="From the first event of the recording.",
        ),
        Figure(
            key="duration", heading="Duration", value=one.length_ns, unit="ns",
            text="Time in which nothing ran on the device, without pauses in which the recording was read.",
        ),
    ]  # fmt: skip
    return Details(
        kind="gap",
        id=id_,
        title=one.cause,
        subtitle=f"GPU {device} idle",
        figures=figures,
        texts=named_texts(
            ("advice", "What To Do", one.advice),
            ("call", "API Call in which the CPU waited", one.call),
            ("host", "Range or Function of the Host", one.host and readable(one.host)),
            ("operator", _WHERE.get(one.where or "", "Operator"), one.operator),
            ("module", "Module", one.module),
            ("line", "Source Line", one.line),
            ("thread", "Thread", thread_label(*thread[0]) if thread else None),
        ),
        stack=frames(one.stack or ""),
        partners=partners,
        roofline=None,
        tables=[],
        start=one.start_ns,
        end=one.end_ns,
    )
