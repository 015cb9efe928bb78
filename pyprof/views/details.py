# SPDX-License-Identifier: Apache-2.0
"""Details of the selected item, for the drawer."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Literal

import numpy as np

from pyprof.core.model import DIRECTIONS
from pyprof.facts.steps.source import Source
from pyprof.measures import efficiency
from pyprof.measures.queries import SELECTED, SPREADS, spreads
from pyprof.metrics import FIGURES
from pyprof.reports import Column
from pyprof.store.files import Store
from pyprof.store.ids import worker_of
from pyprof.store.kinds import ON_CPU
from pyprof.timeline import stored
from pyprof.views import events, iteration_tables, roofline
from pyprof.views.models import Cell, Details, Figure, Frame, NamedTable, Partner, Text
from pyprof.views.problems import Trouble
from pyprof.views.report_pages import columns_of

ROWS = 50  # of a table in the drawer
_KERNELS = (
    Column("kernel", "Kernel Name", "", "Full name.", str),
    Column("calls", "Calls", "count", "Number of executions."),
    Column("gpu", "GPU Time (ns)", "ns", FIGURES["kernel_gpu"].text),
    Column("gpu_min", "Min (ns)", "ns", "Shortest execution."),
    Column("gpu_max", "Max (ns)", "ns", "Longest execution."),
    Column("uses_tc", "Using TC", "", "Whether it used tensor cores; empty if the name does not show it.", bool),
)
_OPERATORS = (
    Column("name", "Op Name", "", "Operator that launched it.", str),
    Column("direction", "Direction", "", "fprop or bprop.", str),
    *_KERNELS[1:5],
)
_TC = f"case when s.{ON_CPU} then null when max(s.tc = 1) then 1 when max(s.tc = 3) then null else 0 end"
_FACTS = "select name, op_id, type, direction, module, stack, params, dtype, shapes, eligible, dtype_ok from operator"


def operator(source: Source, id: str) -> Details:
    """Return an operator by its op_id, or its number. Raises Trouble."""
    number = _number(source, "select id from operator where op_id = ?", "operator", id, "operator")
    row = source.store.rows(f"{_FACTS} where id = ?", (number,))[0]
    name, op_id, type_, direction, module, stack, params, dtype, shapes, eligible, dtype_ok = row
    point = roofline.of_operator(source, number)
    texts = named_texts(
        ("op_id", "Op ID", op_id),
        ("type", "Op Type", type_),
        ("module", "Module", module),
        ("shapes", "Input Shapes", shapes),
        ("dtype", "Data Type", dtype),
        ("params", "Parameters", params),
    )
    partners = _pair(source, number, direction)
    created = direction is not None and DIRECTIONS[direction] == "bprop" and type_ != "accumulate_grad"
    if created and all(partner.relation != "forward" for partner in partners):
        unknown = "na: no recorded operator is known to have created its node"
        texts += named_texts(("forward", "Forward", unknown))
    return Details(
        kind="op",
        id=op_id,
        title=name or op_id,
        subtitle=_subtitle(type_, _direction(direction)),
        figures=[
            *_sums(source, number),
            _flag("eligible", "TC Eligible", eligible, "Whether tensor cores could do it."),
            _flag(
                "dtype_ok",
                "Data Type Fits",
                dtype_ok,
                "Whether tensor cores of this GPU support its data type.",
            ),
            *_work(source, "s.operator", number, "its kernels"),
        ],
        texts=texts,
        stack=frames_of(source, stack),
        partners=partners,
        roofline=point,
        tables=[_kernels(source, number)],
    )


def kernel(source: Source, id: str) -> Details:
    """Return a kernel by its number, or its name. Raises Trouble."""
    number = _number(source, "select id from kernel_name where name = ?", "kernel_name", id, "kernel")
    name, short, kind = source.store.rows("select name, short_name, kind from kernel_name where id = ?", (number,))[0]
    point = roofline.of_kernel(source, number)
    rows = source.store.rows(
        f"""select o.name, case o.direction when 0 then 'fprop' when 1 then 'bprop' end, sum(s.calls),
                   sum(s.gpu_ns), min(s.gpu_min_ns), max(s.gpu_max_ns), o.op_id
            from op_kernel_stat s join operator o on o.id = s.operator
            where {SELECTED} and s.name = :name group by s.operator order by sum(s.gpu_ns) desc, o.id""",
        _parameters(source) | {"name": number},
    )
    calls, gpu = sum(row[2] for row in rows), sum(row[3] for row in rows)
    figures = [
        Figure(key="calls", heading="Calls", value=calls, unit="count", text="Number of executions."),
        _figure("kernel_gpu", gpu),
        Figure(
            key="gpu_avg",
            heading="Avg. GPU Time",
            value=gpu / calls if calls else None,
            unit="ns",
            text="Mean over the calls.",
        ),
        Figure(
            key="gpu_min",
            heading="Min GPU Time",
            value=min((row[4] for row in rows), default=None),
            unit="ns",
            text="Shortest execution.",
        ),
        Figure(
            key="gpu_max",
            heading="Max GPU Time",
            value=max((row[5] for row in rows), default=None),
            unit="ns",
            text="Longest execution.",
        ),
        *_work(source, "s.name", number, "its calls"),
    ]
    table = NamedTable(
        title="Operators",
        columns=columns_of(_OPERATORS),
        rows=[list(row[:6]) for row in rows[:ROWS]],
        kind="op",
        ids=[row[6] for row in rows[:ROWS]],
        total=len(rows),
    )
    return Details(
        kind="kernel",
        id=str(number),
        title=short or name,
        subtitle=kind or "",
        figures=figures,
        texts=named_texts(("name", "Full Name", name)),
        stack=[],
        partners=[],
        roofline=point,
        tables=[table],
    )


def launch(source: Source, id: str) -> Details:
    """Return a GPU event by its number. Raises Trouble."""
    number = row_number(id, "launch")
    rows = source.store.rows(
        """select e.operator, e.op, e.name, n.name, n.short_name, o.name, o.op_id, s.stack, s.module, e.graph,
                  e.start_ns, e.start_ns + e.duration_ns, e.device
           from event e join kernel_name n on n.id = e.name join operator o on o.id = e.operator
           left join site s on s.id = e.site where e.id = ?""",
        (number,),
    )
    if not rows:
        raise Trouble("missing", f"There is no launch {id}.")
    _, execution, kernel_id, name, short, op_name, op_id, stack, module, graph, start, end, device = rows[0]
    cells = events.one(source, number)
    figures = [
        Figure(key=column.key, heading=column.heading, value=value, unit=column.unit, text=column.text)
        for column, value in cells
        if column.key not in ("id", "kernel", "name", "op_id")
    ]
    partners = [
        Partner(relation="operator", kind="op", id=op_id, title=op_name or op_id),
        Partner(relation="kernel", kind="kernel", id=str(kernel_id), title=short or name),
    ]
    step = next((value for column, value in cells if column.key == "iteration"), None)
    if step is not None:
        partners.append(Partner(relation="iteration", kind="iteration", id=str(step), title=f"iteration {step}"))
    partners += _gap_before(source.store, worker_of(number), device, start)
    texts = named_texts(
        ("kernel", "Kernel Name", name),
        ("name", "Op Name", op_name),
        ("module", "Module", module),
        ("execution", "Execution", None if execution is None else str(execution)),
        ("graph", "Graph", None if graph is None else str(graph)),
    )
    return Details(
        kind="launch",
        id=str(number),
        title=short or name,
        subtitle=op_name or "",
        figures=figures,
        texts=texts,
        stack=frames_of(source, stack),
        partners=partners,
        roofline=roofline.of_kernel(source, kernel_id),
        tables=[],
        start=start,
        end=end,
    )


def iteration(source: Source, id: str) -> Details:
    """Return an iteration of the cut by its number, for the selected worker, else for the first that has it. Raises
    Trouble."""
    number = row_number(id, "iteration")
    frame = iteration_tables.iterations(source)
    rows = frame.select(filters=[f"iteration:={number}"])
    if not len(rows):
        raise Trouble("missing", f"There is no iteration {id} in this aggregation's cut.")
    cells = frame.cells(rows[:1])[0]
    figures = [
        Figure(key=column.key, heading=column.heading, value=value, unit=column.unit, text=column.text)
        for column, value in zip(frame.columns, cells)
        if column.key not in ("worker_id",)
    ]
    time = {column.key: value for column, value in zip(frame.columns, cells)}
    operators = iteration_tables.iteration_operators(source, number)
    places = operators.select()[:ROWS]
    op_id = [column.key for column in operators.columns].index("op_id")
    operator_rows = operators.cells(places)
    table = NamedTable(
        title="Operators",
        columns=columns_of(operators.columns),
        rows=operator_rows,
        kind="op",
        ids=[str(row[op_id]) for row in operator_rows],
        total=operators.rows,
    )
    return Details(
        kind="iteration",
        id=str(number),
        title=f"Iteration {number}",
        subtitle=str(cells[0]),
        figures=figures,
        texts=[],
        stack=[],
        partners=[],
        roofline=None,
        tables=[table],
        start=int(time["start"] or 0),
        end=int(time["end"] or 0),
    )


# --- pieces


def _gap_before(store: Store, worker: int, device: int | None, time: int) -> Iterator[Partner]:
    """Yield the gap of a device that ends at a time, if the database has a timeline."""
    for track in stored.places(store, worker, ("idle",)):
        if track.device != device:
            continue
        for gaps in stored.events(store, track, time - 1, time):
            for place in np.flatnonzero(gaps.end == time).tolist():
                ((cause,),) = store.rows("select text from label where id = ?", (int(gaps.name[place]),))
                length = time - int(gaps.start[place])
                yield Partner(
                    relation="idle before",
                    kind="gap",
                    id=f"{worker}.{device}.{gaps.id[place]}",
                    title=f"{cause}, {length:,} ns",
                )


def _number(source: Source, query: str, table: str, id: str, noun: str) -> int:
    """Return the number of a row, by name or by number. Raises Trouble."""
    rows = source.store.rows(query, (id,))
    if not rows and id.isascii() and id.isdecimal() and len(id) < 16:
        rows = source.store.rows(f"select id from {table} where id = ?", (int(id),))
    if not rows:
        raise Trouble("missing", f"There is no {noun} {id!r} in this profile.")
    return int(rows[0][0])


def row_number(id: str, noun: str) -> int:
    if not (id.isascii() and id.isdecimal() and len(id) < 17):
        raise Trouble("missing", f"There is no {noun} {id!r}: expected its number.")
    return int(id)


def _parameters(source: Source) -> dict[str, int | None]:
    return {"aggregation": source.aggregation.id, "worker": source.worker}


def _direction(direction: int) -> str:
    return "" if DIRECTIONS[direction] == "na" else DIRECTIONS[direction]


def _subtitle(*parts: str | None) -> str:
    return ", ".join(part for part in parts if part)


def named_texts(*entries: tuple[str, str, str | None]) -> list[Text]:
    return [Text(key=key, heading=heading, value=value) for key, heading, value in entries if value]


def _figure(key: str, value: Cell) -> Figure:
    figure = FIGURES[key]
    return Figure(key=key, heading=figure.heading, value=value, unit=figure.unit, text=figure.text)


def _flag(key: str, heading: str, value: int | None, text: str) -> Figure:
    return Figure(key=key, heading=heading, value=None if value is None else bool(value), unit="", text=text)


def _sums(source: Source, number: int) -> list[Figure]:
    """Return the sums over the operator's executions in the window."""
    names, rows = source.store.named(
        f"""select sum(s.calls) as calls, sum(s.kernels) as kernels, sum(s.tc_kernels) as tc_kernels,
                   sum(s.kernel_ns) as kernel, sum(s.tc_ns) as tc, {spreads()} from op_stat s
            where {SELECTED} and s.operator = :operator""",
        _parameters(source) | {"operator": number},
    )
    sums = dict(zip(names, rows[0]))
    hidden = () if source.gpu else ("tc_kernels", "tc", "overhead", "idle")
    out = [
        _figure(key, None if key in hidden else sums[key]) for key in ("calls", "kernels", "tc_kernels", "kernel", "tc")
    ]
    for key in SPREADS:
        figure = FIGURES[key]
        for end, heading, text in (
            ("", figure.heading, figure.text),
            ("_avg", f"Avg. {figure.heading}", "Mean over the executions."),
            ("_min", f"Min {figure.heading}", "Minimum over the executions."),
            ("_max", f"Max {figure.heading}", "Maximum over the executions."),
        ):
            value = None if key in hidden else sums[key + end]
            out.append(Figure(key=key + end, heading=heading, value=value, unit=figure.unit, text=text))
    return out


def _work(source: Source, by: str, number: int, of: str) -> list[Figure]:
    """Return how well a group of kernels uses its device, as far as that is known."""
    table = efficiency.of_operators(source, (by,))
    values = table.loc[number].to_dict() if number in table.index else {}
    return [
        Figure(key=column.key, heading=column.heading, value=value, unit=column.unit, text=column.text)
        for column in efficiency.columns(of)
        if (value := values.get(column.key)) is not None and value == value
    ]


def _kernels(source: Source, number: int) -> NamedTable:
    rows = source.store.rows(
        f"""select n.name, sum(s.calls), sum(s.gpu_ns), min(s.gpu_min_ns), max(s.gpu_max_ns), {_TC}, s.name
            from op_kernel_stat s join kernel_name n on n.id = s.name
            where {SELECTED} and s.operator = :operator group by s.name order by sum(s.gpu_ns) desc, s.name""",
        _parameters(source) | {"operator": number},
    )
    cells: list[list[Any]] = [[*row[:5], None if row[5] is None else bool(row[5])] for row in rows[:ROWS]]
    return NamedTable(
        title="Kernels",
        columns=columns_of(_KERNELS),
        rows=cells,
        kind="kernel",
        ids=[str(row[6]) for row in rows[:ROWS]],
        total=len(rows),
    )


def _pair(source: Source, number: int, direction: int) -> list[Partner]:
    """Return the operators whose executions are the forward or the backward of this one's, from the iteration in which
    it first ran, because operators' executions have no index."""
    execution = source.store.rows("select id from op where operator = ? limit 1", (number,))
    if not execution:
        return []
    bounds = source.store.rows(
        """select first_op, last_op from iteration
           where iteration_set = ? and first_op <= ? and last_op > ? order by number limit 1""",
        (source.aggregation.iteration_set, execution[0][0], execution[0][0]),
    )
    low, high = bounds[0] if bounds else (execution[0][0], execution[0][0] + 1)
    joined = """from op b join op f on f.id = b.forward join operator o on o.id = {}.operator
                where b.id >= :low and b.id < :high and b.forward is not null and {}.operator = :operator limit 1"""
    values = {"low": low, "high": high, "operator": number}
    out = []
    relations: tuple[tuple[Literal["forward", "backward"], str, str], ...] = (
        ("forward", "f", "b"),
        ("backward", "b", "f"),
    )
    for relation, its, own in relations:
        if relation == "backward" and DIRECTIONS[direction] == "bprop":
            continue
        for op_id, name in source.store.rows(f"select o.op_id, o.name {joined.format(its, own)}", values):
            out.append(Partner(relation=relation, kind="op", id=op_id, title=name or op_id))
    return out


def frames_of(source: Source, stack: int | None) -> list[Frame]:
    rows = source.store.rows("select frames from stack where id = ?", (stack,)) if stack is not None else []
    return frames(rows[0][0] if rows and rows[0][0] else "")


def frames(text: str) -> list[Frame]:
    r"""Return the lines of a call stack, outermost first.

    >>> [(frame.file, frame.line) for frame in frames("/a/train.py:12\nnet.py:7")]
    [('/a/train.py', 12), ('net.py', 7)]
    """
    out = []
    for entry in text.splitlines():
        file, _, line = entry.rpartition(":")
        if file and line.isascii() and line.isdecimal():
            out.append(Frame(file=file, line=int(line), readable=False))
        elif entry:
            out.append(Frame(file=entry, line=0, readable=False))
    return out
