# SPDX-License-Identifier: Apache-2.0
"""Details of a gap of a device: how long nothing ran, why, and what the host did, as in the report of idle time."""

from __future__ import annotations

import re

from pyprof.core.marker import readable
from pyprof.facts.host.gaps import CAUSES, clipped, describe_places, gaps
from pyprof.facts.steps.source import Source
from pyprof.reports.idle import ADVICE
from pyprof.views.details import frames, named_texts
from pyprof.views.host_details import thread_label
from pyprof.views.models import Details, Figure, Partner
from pyprof.views.problems import Trouble

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
    activity = source.activity(worker)
    own = clipped(gaps(activity, device), *activity.extent)
    if device not in activity.devices or number >= len(own.start):
        raise Trouble("missing", f"There is no gap {id_}: device {device} of the worker has fewer.")
    one = own.take(slice(number, number + 1))  # type: ignore[arg-type]
    start, end, cause, event = (
        int(one.start[0]),
        int(one.end[0]),
        CAUSES[int(one.cause[0])],
        int(one.event[0]),
    )
    length = end - start - int(activity.paused.within(one.start, one.end)[0])
    place = describe_places(source.store, one.place).iloc[0]
    thread = source.store.rows("select tid, name from thread where id = ?", (int(one.thread[0]),))
    kernel = source.store.rows(
        "select coalesce(n.short_name, n.name) from event e join kernel_name n on n.id = e.name where e.id = ?",
        (event,),
    )
    partners = []
    if kernel:
        partners.append(Partner(relation="ended by", kind="launch", id=str(event), title=kernel[0][0]))
    if place["op_id"]:
        title = place["operator"] or place["op_id"]
        partners.append(Partner(relation="operator", kind="op", id=place["op_id"], title=title))
    figures = [
        Figure(
            key="start", heading="Start (ns)", value=start, unit="ns",
            text="From the first event of the recording.",
        ),
        Figure(
            key="duration", heading="Duration", value=length, unit="ns",
            text="Time in which nothing ran on the device, without pauses in which the recording was read.",
        ),
    ]  # fmt: skip
    return Details(
        kind="gap",
        id=id_,
        title=cause,
        subtitle=f"GPU {device} idle",
        figures=figures,
        texts=named_texts(
            ("advice", "What To Do", ADVICE[cause]),
            ("call", "API Call in which the CPU waited", place["call"]),
            ("host", "Range or Function of the Host", place["host"] and readable(place["host"])),
            ("operator", _WHERE.get(place["where"] or "", "Operator"), place["operator"]),
            ("module", "Module", place["module"]),
            ("line", "Source Line", place["line"]),
            ("thread", "Thread", thread_label(*thread[0]) if thread else None),
        ),
        stack=frames(place["stack"] or ""),
        partners=partners,
        roofline=None,
        tables=[],
        start=start,
        end=end,
    )
