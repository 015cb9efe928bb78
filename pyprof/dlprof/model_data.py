# SPDX-License-Identifier: Apache-2.0
"""`--dump_model_data`: every event with its operator, as one JSON object of tables.

One row per line, written as it is read, so a file of any size needs little memory. `TABLES` has the tables and their
fields; docs/dlprof.md is generated from it. Integers are exact, unknown is null.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

from pyprof.core import atomic_file
from pyprof.core.errors import PyProfError
from pyprof.core.model import DIRECTIONS, KINDS, PHASES
from pyprof.facts.steps.source import Source
from pyprof.store.files import Store

VERSION = 1
Progress = Callable[[float], None]
_PROGRESS_ROWS = 1 << 15  # rows between two calls of the progress callback


class Field(NamedTuple):
    """A field of a row: the column or expression it comes from, and its description."""

    name: str
    column: str
    text: str
    convert: Callable[[Any], Any] | None = None  # only in small tables: SQLite converts the others to JSON


class Table(NamedTuple):
    """A table: a query without its columns, and fields."""

    name: str
    text: str
    rows: str
    fields: tuple[Field, ...]


def _named(column: str, names: tuple[str, ...]) -> str:
    """Return an SQL expression that names a number."""
    cases = " ".join(f"when {number} then '{name}'" for number, name in enumerate(names))
    return f"case {column} {cases} end"


def _flag(value: Any) -> bool | None:
    return None if value is None else bool(value)


def _lines(value: str | None) -> list[str]:
    return value.split("\n") if value else []


_KINDS = tuple("cpu" if name == "operator" else name for name in KINDS)

TABLES = (
    Table("workers", "Processes with operators or GPU events.", "from worker w order by id", (
        Field("id", "w.id", "Number."), Field("name", "w.name", "`rank3`, or host and process."),
        Field("pid", "w.pid", "Process id."), Field("rank", "w.rank", "Rank in a distributed program."),
        Field("host", "w.host", "Machine."), Field("start_ns", "w.start_ns", "First event."),
        Field("end_ns", "w.end_ns", "End of the last event."),
    )),
    Table("devices", "GPUs.", "from device d order by worker, number", (
        Field("worker", "d.worker", "Worker."), Field("number", "d.number", "Number of the device."),
        Field("name", "d.name", "Name."), Field("compute_capability", "d.compute_capability", "As `8.0`."),
        Field("sm_count", "d.sm_count", "Streaming multiprocessors."),
        Field("memory_bytes", "d.memory_bytes", "Memory."), Field("events", "d.events", "Events that ran on it."),
    )),
    Table("operators", "Places in the model, by arguments and direction.",
          "from operator o left join stack k on k.id = o.stack order by o.id", (
        Field("id", "o.id", "Number."), Field("op_id", "o.op_id", "Id as in the reports."),
        Field("name", "o.name", "Path in the tree."), Field("type", "o.type", "Kind of operation."),
        Field("direction", _named("o.direction", DIRECTIONS), "fprop, bprop or na."),
        Field("phase", _named("o.phase", PHASES), "forward, backward, recompute, optimizer or none."),
        Field("module", "o.module", "Module of the model."), Field("dtype", "o.dtype", "Types of the arguments."),
        Field("shapes", "o.shapes", "Shapes of the arguments."), Field("params", "o.params", "Other arguments."),
        Field("tc_eligible", "o.eligible", "Tensor cores support it.", _flag),
        Field("unassociated", "o.unassociated > 0", "Stands for work outside every operator.", _flag),
        Field("stack", "k.frames", "Source lines, outermost first.", _lines),
    )),
    Table("iterations", "Iterations of the cut that was aggregated.",
          "from iteration i where i.iteration_set = :cut order by i.worker, i.number", (
        Field("worker", "i.worker", "Worker."), Field("number", "i.number", "From 0."),
        Field("start_ns", "i.start_ns", "Start."), Field("end_ns", "i.end_ns", "End."),
        Field("aggregated", "i.number between :first and :last", "In the aggregation.", _flag),
        Field("partial", "i.partial", "Only a part of an iteration.", _flag),
    )),
    Table("ops", "Executions of operators, by worker and start.", "from op p order by p.id", (
        Field("id", "p.id", "Number."), Field("operator", "p.operator", "Operator."),
        Field("worker", "p.id >> 40", "Worker."), Field("thread", "p.thread", "Thread."),
        Field("start_ns", "p.start_ns", "Start."), Field("end_ns", "p.end_ns", "End."),
        Field("cpu_ns", "p.cpu_ns", "CPU time."), Field("api_ns", "p.api_ns", "API time."),
        Field("gpu_ns", "p.gpu_ns", "GPU time."), Field("idle_ns", "p.idle_ns", "GPU idle time."),
        Field("seq", "p.seq", "Sequence number of autograd."),
        Field("forward", "p.forward", "Of a backward: the execution it belongs to."),
    )),
    Table("kernels", "GPU events; without a GPU, operator events. By worker and launch.",
          """from event e join kernel_name n on n.id = e.name
             left join geometry g on g.id = e.geometry
             left join api a on a.id = e.api
             left join string s on s.id = a.name
             order by e.id""", (
        Field("id", "e.id", "Number."), Field("op", "e.op", "Execution that launched it."),
        Field("operator", "e.operator", "Its operator."), Field("worker", "e.id >> 40", "Worker."),
        Field("kind", _named("e.kind", _KINDS), "kernel, memcpy, memset, or cpu."),
        Field("name", "n.name", "Full name."), Field("device", "e.device", "Device."),
        Field("stream", "e.stream", "Stream."), Field("start_ns", "e.start_ns", "Start on the device."),
        Field("duration_ns", "e.duration_ns", "Time on the device; self time of an operator event."),
        Field("api_name", "s.text", "API call that launched it."), Field("api_start_ns", "a.start_ns", "Its start."),
        Field("api_duration_ns", "a.duration_ns", "Its length."),
        Field("uses_tc", "json(case e.tc when 1 then 'true' when 0 then 'false' end)",
              "Used tensor cores; null: does not apply or is unknown."),
        Field("grid", "case when g.grid_x is not null then json_array(g.grid_x, g.grid_y, g.grid_z) end", "Blocks."),
        Field("block", "case when g.block_x is not null then json_array(g.block_x, g.block_y, g.block_z) end",
              "Threads."),
        Field("flops", "e.flops", "Operations."), Field("bytes", "e.bytes", "Bytes that must move."),
        Field("copied_bytes", "e.copied_bytes", "Of a copy or set: its size."),
    )),
    Table("api_calls", "CUDA API calls, by worker and start.",
          "from api a left join string s on s.id = a.name order by a.id", (
        Field("id", "a.id", "Number."), Field("op", "a.op", "Execution around it."),
        Field("name", "s.text", "Name."), Field("thread", "a.thread", "Thread."),
        Field("start_ns", "a.start_ns", "Start."), Field("duration_ns", "a.duration_ns", "Length."),
    )),
)  # fmt: skip


def save(source: Source, path: str, progress: Progress = lambda share: None) -> None:
    """Write the object into a file atomically. Raises PyProfError."""
    try:
        with (
            atomic_file.named(path) as name,
            open(name, "w", encoding="utf-8", errors="backslashreplace") as file,
        ):
            file.writelines(pieces(source, progress))
    except OSError as error:
        raise PyProfError(f"{path} cannot be written ({error.strerror or error}).") from error


def pieces(source: Source, progress: Progress = lambda share: None) -> Iterator[str]:
    """Yield the text of the object row by row; `progress` is called with the share of the work that is done."""
    aggregation, store = source.aggregation, source.store
    head = {
        "method": aggregation.method,
        "key": aggregation.key,
        "iter_start": aggregation.first,
        "iter_stop": aggregation.last,
    }
    yield f'{{"pyprof_model_data": {VERSION},\n"meta": {_json(store.meta)},\n"aggregation": {_json(head)}'
    bound = {"cut": aggregation.iteration_set, "first": aggregation.first, "last": aggregation.last}
    total = store.rows("select (select count(*) from event) + (select count(*) from op) + (select count(*) from api)")
    done = 0
    for table in TABLES:
        yield f",\n{_json(table.name)}: ["
        for number, row in enumerate(_rows(store, table, bound)):
            yield (",\n" if number else "\n") + row
            done += 1
            if not done % _PROGRESS_ROWS:
                progress(min(1.0, done / total[0][0]))
        yield "\n]"
    yield "\n}\n"


def _rows(store: Store, table: Table, bound: dict[str, int]) -> Iterator[str]:
    converters = {field.name: field.convert for field in table.fields if field.convert is not None}
    if not converters:
        pairs = ", ".join(f"'{field.name}', {field.column}" for field in table.fields)
        for (row,) in store.each(f"select json_object({pairs}) {table.rows}", bound):
            yield row
        return
    columns = ", ".join(field.column for field in table.fields)
    for values in store.each(f"select {columns} {table.rows}", bound):
        row = dict(zip((field.name for field in table.fields), values))
        yield _json({name: converters[name](value) if name in converters else value for name, value in row.items()})


def _json(value: object) -> str:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))


def page() -> str:
    """Return the schema for docs/dlprof.md."""
    lines = []
    for table in TABLES:
        lines += [f"- `{table.name}`: {table.text}", ""]
        lines += ["  | field | description |", "  |---|---|"]
        lines += [f"  | `{field.name}` | {field.text} |" for field in table.fields]
        lines.append("")
    return "\n".join(lines[:-1]) + "\n"
