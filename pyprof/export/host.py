# SPDX-License-Identifier: Apache-2.0
"""Events of a Chrome trace on the CPU: ranges and operators, API calls, iterations, allocations."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pandas as pd
import pyarrow as pa

from pyprof.core.model import MARK, START_END, Bools, Column, Ints
from pyprof.export import chrome_names, dimensions
from pyprof.export.events import MASK, SHIFT, Events, event
from pyprof.export.json_text import line, number, optional, quoted, select
from pyprof.store.kinds import ON_CPU, OPERATOR_EVENT, PYTHON_FUNCTION


def ranges(trace: Events, worker: int) -> Iterator[pa.Array]:
    """Yield ranges, operators and Python functions. Ranges that need not nest are asynchronous, marks are instants."""
    its_event = "null"
    if not trace.gpu:  # figures are those of the operator event
        its_event = f"""(select e.id from event e join kernel_name k on k.id = e.name
                    where e.{ON_CPU} and e.device is null and e.stream = thread.tid and e.start_ns = range.start_ns
                    and e.total_ns = range.duration_ns and k.name = string.text and e.id >> 40 = range.id >> 40
                    limit 1)"""
    query = f"""select range.id, range.thread, range.kind, range.start_ns, range.duration_ns, range.text,
                       range.args, range.seq, event.operator, event.site, event.op, event.flops, event.bytes
                from range join thread on thread.id = range.thread join string on string.id = range.text
                left join event on event.id = {its_event} where"""
    for rows in trace.pieces("range", worker, query, "range.start_ns", "range.duration_ns"):
        kind = rows["kind"].values
        labels, code = _labels(trace, rows)
        operator = np.array([label.category == chrome_names.OPERATOR for label in labels], bool)[code]
        if trace.gpu:
            _add_executions(trace, worker, rows, operator)
        ids = rows["id"].values
        args = line(
            select([label.args for label in labels], code),
            optional(',"Sequence number":', number(rows["seq"])),
            optional(',"External id":', trace.external(rows["op"])),
            optional(',"flops":', number(rows["flops"])),
            optional(',"algorithmic bytes":', number(rows["bytes"])),
            optional("", select(trace.operators, rows["operator"])),
            optional("", select(trace.places, rows["operator"])),
        )
        pid, tid = trace.on_thread(rows["thread"].values)
        start, dur = rows["start_ns"].values, rows["duration_ns"].values
        common = line(
            '"name":', select([label.name for label in labels], code), ',"cat":"',
            select([label.category for label in labels], code), '","pid":', pid, ',"tid":', tid,
        )  # fmt: skip
        args = line(',"args":{"Range id":', number(ids & MASK), args, "}}")
        plain, between, mark = (
            np.flatnonzero(mask) for mask in ((kind != START_END) & (kind != MARK), kind == START_END, kind == MARK)
        )
        yield event("X", common, start, dur, args, plain)
        yield event("i", common, start, None, line(',"s":"t"', args), mark)
        same = line(',"id":', number(ids))
        yield event("b", common, start, None, line(same, args), between)
        yield event("e", common, start + dur, None, line(same, "}"), between)


def _labels(trace: Events, rows: dict[str, Column]) -> tuple[list[chrome_names.Label], Ints]:
    """Return the labels of the distinct ranges, and the index of each row's label."""
    kind, args, numbered = rows["kind"].values, rows["args"], rows["seq"].mask()
    keys = np.column_stack([
        np.minimum(kind, PYTHON_FUNCTION), rows["text"].values, np.where(args.mask(), args.values, -1), numbered,
    ])  # fmt: skip
    distinct, code = np.unique(keys, axis=0, return_inverse=True)
    out = []
    for range_kind, text, args_id, has_number in distinct.tolist():
        name = trace.strings[text]
        if range_kind == PYTHON_FUNCTION:
            out.append(chrome_names.Label(quoted(name), chrome_names.FUNCTION))
        elif range_kind == OPERATOR_EVENT:
            out.append(chrome_names.of_event(name, trace.strings.get(args_id)))
        else:
            out.append(chrome_names.of_range(name, bool(has_number)))
    return out, code.reshape(-1)


def _add_executions(trace: Events, worker: int, rows: dict[str, Column], operator: Bools) -> None:
    """Add to a piece of ranges the executions that begin with a range: for equal starts, the outermost."""
    start, thread = rows["start_ns"].values, rows["thread"].values
    low, high = (_first_op(trace, worker, time) for time in (int(start.min()), int(start.max()) + 1))
    ops = trace.store.columns(
        f"""select id, thread, operator, start_ns from op
            where id >= {low} and id < {high} and thread is not null"""
    )
    left = pd.DataFrame({"thread": thread, "start_ns": start})
    right = pd.DataFrame({name: ops[name].values for name in ("thread", "start_ns")})
    right["row"] = np.arange(len(right))
    first = right.drop_duplicates(["thread", "start_ns"])
    row = left.merge(first, how="left", on=["thread", "start_ns"])["row"]
    has_execution = row.notna().to_numpy() & operator
    places = np.flatnonzero(has_execution)
    has_execution[places[left.iloc[places].duplicated().to_numpy()]] = False
    at = np.where(has_execution, row.fillna(0), 0).astype(np.int64)
    for name, key in (("op", "id"), ("operator", "operator")):
        rows[name] = Column(np.r_[ops[key].values, 0][at], has_execution)


def _first_op(trace: Events, worker: int, time: int) -> int:
    """Return the first execution of a worker that starts at or after a time; executions are sorted by start."""
    low, stop = worker << SHIFT, (worker + 1) << SHIFT
    last = trace.store.rows("select max(id) from op where id >= ? and id < ?", (low, stop))[0][0]
    high = low if last is None else last + 1
    while low < high:
        middle = (low + high) // 2
        row = trace.store.rows("select start_ns from op where id = ?", (middle,))
        if row and row[0][0] < time:
            low = middle + 1
        else:
            high = middle
    return low


def calls(trace: Events, worker: int) -> Iterator[pa.Array]:
    """Yield API calls."""
    query = "select api.id, api.thread, api.name, api.start_ns, api.duration_ns, api.op from api where"
    names = dimensions.calls(trace.strings)
    for rows in trace.pieces("api", worker, query, "api.start_ns", "api.duration_ns"):
        pid, tid = trace.on_thread(rows["thread"].values)
        name = rows["name"].values
        common = line(select(names, name), ',"pid":', pid, ',"tid":', tid)
        args = line(
            ',"args":{"correlation":',
            number(trace.number_of("api", rows["id"].values)),
            optional(',"External id":', trace.external(rows["op"])),
            "}}",
        )
        yield event("X", common, rows["start_ns"].values, rows["duration_ns"].values, args)


def _is_step(text: str) -> bool:
    return text.startswith("ProfilerStep#")


def steps(trace: Events) -> Iterator[pa.Array]:
    """Yield iterations of the first cut, unless they are ranges anyway."""
    cut = trace.store.rows("select method from iteration_set order by id limit 1")
    if not cut or cut[0][0] in ("ranges", "none") or any(map(_is_step, trace.strings.values())):
        return
    main = dict(
        trace.store.rows(
            """select worker, thread from (select id >> 40 as worker, thread, count(*) as n from op
               where thread is not null group by 1, 2 order by n, thread desc)"""
        )
    )
    rows = trace.store.rows(
        f"""select worker, number, host_start_ns, host_end_ns - host_start_ns from iteration
            where iteration_set = (select min(id) from iteration_set)
            and {trace.window.sql("host_start_ns", "(host_end_ns - host_start_ns)")} order by 1, 2"""
    )
    rows = [(*row, main[row[0]]) for row in rows if row[0] in main]
    if rows:
        _, step, start, dur, thread = np.array(rows, np.int64).T
        pid, tid = trace.on_thread(thread)
        common = line('"name":"ProfilerStep#', number(step), '","cat":"user_annotation","pid":', pid, ',"tid":', tid)
        yield event("X", common, start, dur, line(',"args":{"step":', number(step), "}}"))


def memory(trace: Events, worker: int) -> Iterator[pa.Array]:
    """Yield allocations and releases."""
    query = """select memory.id, thread, time_ns, device, address, bytes, allocated_bytes, reserved_bytes
               from memory where"""
    for rows in trace.pieces("memory", worker, query, "time_ns", "0"):
        pid, tid = trace.on_thread(rows["thread"].values)
        common = line('"name":"[memory]","cat":"cpu_instant_event","pid":', pid, ',"tid":', tid)
        device = rows["device"]
        args = line(
            ',"s":"t","args":{"Bytes":', number(rows["bytes"]), optional(',"Addr":', number(rows["address"])),
            optional(',"Total Allocated":', number(rows["allocated_bytes"])),
            optional(',"Total Reserved":', number(rows["reserved_bytes"])),
            ',"Device Id":', number(np.where(device.mask(), device.values, -1)),
            ',"Device Type":', number(device.mask().astype(np.int64)), "}}",
        )  # fmt: skip
        yield event("i", common, rows["time_ns"].values, None, args)
