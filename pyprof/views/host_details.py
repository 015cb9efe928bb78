# SPDX-License-Identifier: Apache-2.0
"""Details of what the timeline shows of the host: a range, an API call."""

from __future__ import annotations

from typing import Any

from pyprof.core.api_names import without_version
from pyprof.core.marker import readable
from pyprof.facts.steps.source import Source
from pyprof.reports import Column
from pyprof.store.ids import worker_of
from pyprof.store.moments import first_from
from pyprof.views.details import ROWS, frames_of, named_texts, row_number
from pyprof.views.models import Details, Figure, NamedTable, Partner
from pyprof.views.problems import Trouble
from pyprof.views.report_pages import columns_of

_KINDS = ("push/pop range", "start/end range", "mark", "operator or range of torch", "Python function")
_MANY = 200_000  # launches of a range that are added up
_SEARCHED = 2000  # executions before a moment, of which one may be around it
_COLUMNS = (
    Column("kernel", "Kernel Name", "", "Full name.", str),
    Column("start", "Start (ns)", "ns", "Start on the device."),
    Column("duration", "GPU Time (ns)", "ns", "Time on the device."),
)


def range_(source: Source, id: str) -> Details:
    """Return an NVTX range, an operator event or a Python function by its number. Raises Trouble."""
    number = row_number(id, "range")
    rows = source.store.rows(
        """select r.thread, r.kind, r.start_ns, r.duration_ns, s.text, a.text, r.stack, r.seq, t.tid, t.name
           from range r join string s on s.id = r.text left join string a on a.id = r.args
           join thread t on t.id = r.thread where r.id = ?""",
        (number,),
    )
    if not rows:
        raise Trouble("missing", f"There is no range {id}.")
    thread, kind, start, length, text, arguments, stack, seq, tid, thread_name = rows[0]
    operator = _operator_at(source, worker_of(number), thread, start, start + length)
    return Details(
        kind="range",
        id=str(number),
        title=readable(text),
        subtitle=_KINDS[kind],
        figures=_times(start, length),
        texts=named_texts(
            ("text", "Text", text if readable(text) != text else None),
            ("args", "Arguments", arguments),
            ("seq", "Sequence Number", None if seq is None else str(seq)),
            ("thread", "Thread", thread_label(tid, thread_name)),
            ("module", "Module", operator[2] if operator else None),
        ),
        stack=frames_of(source, stack if stack is not None else operator[3] if operator else None),
        partners=_partners(operator),
        roofline=None,
        tables=_launches(source, worker_of(number), thread, start, start + length),
        start=start,
        end=start + length,
    )


def call(source: Source, id: str) -> Details:
    """Return an API call by its number. Raises Trouble."""
    number = row_number(id, "API call")
    rows = source.store.rows(
        """select c.thread, c.start_ns, c.duration_ns, s.text, o.op_id, o.name, o.module, o.stack, o.unassociated,
                  t.tid, t.name from api c join string s on s.id = c.name join thread t on t.id = c.thread
           left join op e on e.id = c.op left join operator o on o.id = e.operator where c.id = ?""",
        (number,),
    )
    if not rows:
        raise Trouble("missing", f"There is no API call {id}.")
    thread, start, length, name, op_id, operator, module, stack, outside, tid, thread_name = rows[0]
    inside = None if op_id is None or outside == 1 else (op_id, operator, module, stack)
    return Details(
        kind="call",
        id=str(number),
        title=without_version(name),
        subtitle="API call",
        figures=_times(start, length),
        texts=named_texts(("thread", "Thread", thread_label(tid, thread_name)), ("module", "Module", module)),
        stack=frames_of(source, stack),
        partners=_partners(inside),
        roofline=None,
        tables=_launches(source, worker_of(number), thread, start, start + length),
        start=start,
        end=start + length,
    )


def _times(start: int, length: int) -> list[Figure]:
    return [
        Figure(
            key="start",
            heading="Start (ns)",
            value=start,
            unit="ns",
            text="From the first event of the recording.",
        ),
        Figure(key="duration", heading="Duration", value=length, unit="ns", text="Time on the thread."),
    ]


def thread_label(tid: int | None, name: str | None) -> str | None:
    return " ".join(str(part) for part in (name, tid) if part is not None) or None


def _operator_at(source: Source, worker: int, thread: int, start: int, end: int) -> tuple[Any, ...] | None:
    """Return op_id, name, module and stack of the innermost operator around a stretch of a thread."""
    after = first_from(source.store, "op", worker, start + 1)
    rows = source.store.rows(
        """select o.op_id, o.name, o.module, o.stack from op e join operator o on o.id = e.operator
           where e.id >= ? and e.id < ? and e.thread = ? and e.end_ns >= ? and o.unassociated != 1
           order by e.id desc limit 1""",
        (after - _SEARCHED, after, thread, end),
    )
    return rows[0] if rows else None


def _partners(operator: tuple[Any, ...] | None) -> list[Partner]:
    if operator is None:
        return []
    return [Partner(relation="operator", kind="op", id=operator[0], title=operator[1] or operator[0])]


def _launches(source: Source, worker: int, thread: int, start: int, end: int) -> list[NamedTable]:
    """Return the events that a thread launched between two times, the longest first; nothing for very many."""
    first, last = (first_from(source.store, "event", worker, time) for time in (start, end))
    if first >= last or last - first > _MANY:
        return []
    condition = "from event e join api c on c.id = e.api where e.id >= ? and e.id < ? and c.thread = ?"
    values = (first, last, thread)
    count, time = source.store.rows(f"select count(*), coalesce(sum(e.duration_ns), 0) {condition}", values)[0]
    if not count:
        return []
    rows = source.store.rows(
        f"""select n.name, e.start_ns, e.duration_ns, e.id
            {condition.replace(" where", " join kernel_name n on n.id = e.name where")}
            order by e.duration_ns desc, e.id limit {ROWS}""",
        values,
    )
    return [
        NamedTable(
            title=f"Launched work, {time:,} ns on devices",
            columns=columns_of(_COLUMNS),
            rows=[list(row[:3]) for row in rows],
            kind="launch",
            ids=[str(row[3]) for row in rows],
            total=count,
        )
    ]
