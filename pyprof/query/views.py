# SPDX-License-Identifier: Apache-2.0
"""Views of the profile database for queries: stable names, units in the names, words in place of codes.

The tables of the schema (store/schema.sql) may change with any version; columns of views are only added. Steps are the
iterations of the original aggregation. A column that nobody selects costs nothing.
"""

from __future__ import annotations

from typing import NamedTuple

from pyprof.core.api_names import API_KINDS
from pyprof.core.model import (
    DIRECTIONS,
    MARK,
    MEMORY_KINDS,
    NO_DIRECTION,
    NO_PHASE,
    PHASES,
    PUSH_POP,
    START_END,
)
from pyprof.store.ids import WORKER_SHIFT
from pyprof.store.kinds import IS_COPY, IS_KERNEL, IS_SET, ON_CPU, OPERATOR_EVENT, PYTHON_FUNCTION


class Field(NamedTuple):
    """A column of a view: its name, the expression in SQL and the definition."""

    name: str
    sql: str
    text: str


class View(NamedTuple):
    """A view: what a row is, the columns, and the tables that they come from."""

    text: str
    fields: tuple[Field, ...]
    source: str


def _words(column: str, words: dict[int, str]) -> str:
    """Return an expression for the word of a code, NULL for an unknown one."""
    return f"case {column} {' '.join(f'when {code} then {_quoted(word)}' for code, word in words.items())} end"


def _quoted(word: str) -> str:
    return "'" + word.replace("'", "''") + "'"


_DIRECTION = {code: word for code, word in enumerate(DIRECTIONS) if code != NO_DIRECTION}
_PHASE = {code: word for code, word in enumerate(PHASES) if code != NO_PHASE}
# The aggregation that was made with the database.
_FIRST = "(select min(id) from aggregation)"
_SET = f"(select iteration_set from aggregation where id = {_FIRST})"


def _line(column: str) -> str:
    """Return an expression for the last line of a text."""
    return f"nullif(replace({column}, rtrim({column}, replace({column}, char(10), '')), ''), '')"


def _worker(id_: str) -> Field:
    return Field("worker", f"(select name from worker where id = {id_} >> {WORKER_SHIFT})", "Name of the process.")


def _thread(column: str) -> Field:
    return Field("thread", f"(select tid from thread where id = {column})", "Number of the thread.")


def _step(id_: str, bound: str) -> Field:
    """Return the field for the step of an event or an execution. `bound`: event or op."""
    return Field(
        "step",
        f"(select number from _step_of_{bound} where first <= {id_} and {id_} < last order by first desc limit 1)",
        "Number of the step that launched it; NULL outside of all.",
    )


_OPERATOR = (
    Field("op_id", "o.op_id", "Identifier of the operator, as in the view operators."),
    Field("operator", "case when o.unassociated = 1 then null else o.name end", "Path of the operator."),
    Field("operator_type", "case when o.unassociated = 1 then null else o.type end", "What it does: linear."),
    Field("module", "o.module", "Path of the module; NULL outside of modules."),
    Field("direction", _words("o.direction", _DIRECTION), "fprop or bprop; NULL if neither."),
    Field("phase", _words("o.phase", _PHASE), f"{', '.join(_PHASE.values())}; NULL if none of them."),
    Field(
        "source_line",
        f"(select {_line('k.frames')} from stack k where k.id = o.stack)",
        "FILE:LINE of the call.",
    ),
    Field(
        "call_stack",
        "(select nullif(k.frames, '') from stack k where k.id = o.stack)",
        "All lines of the call stack, outermost first, one per line.",
    ),
    Field("shapes", "o.shapes", "Shapes of the tensors of the call."),
    Field("dtype", "o.dtype", "Types of the tensors of the call."),
)
_TIME = (
    Field("start_ns", "{0}.start_ns", "Start, from the first event of the recording."),
    Field("duration_ns", "{0}.duration_ns", "Length."),
)


def _time(table: str) -> tuple[Field, ...]:
    return tuple(field._replace(sql=field.sql.format(table)) for field in _TIME)


_DEVICE = (
    Field("device", "e.device", "Number of the GPU."),
    Field("stream", "e.stream", "Number of the stream."),
)
_LAUNCH = (
    Field(
        "launch_start_ns",
        "(select start_ns from api where id = e.api)",
        "Start of the API call that launched it.",
    ),
    Field("launch_ns", "(select duration_ns from api where id = e.api)", "Length of that call."),
)
_WORK = (
    Field("flops", "e.flops", "FLOPs that it executed; NULL is unknown."),
    Field("model_flops", "e.dense_flops", "FLOPs that the model needs, without recomputation or padding."),
    Field("bytes", "e.bytes", "Bytes that it must move at least."),
)
_SHARES = (
    Field("roofline_ns", "e.roofline_ns", "Time that the device needs at least."),
    Field(
        "efficiency_percent",
        "case when e.hardware_ps is not null then 100.0 * e.roofline_ns / nullif(e.duration_ns, 0) end",
        "Roofline time as a share of the duration; above 100 if a cache holds part of the data. NULL for Winograd "
        "and FFT, whose executed FLOPs are unknown.",
    ),
    Field("hfu_percent", "e.hardware_ps / 10.0 / nullif(e.duration_ns, 0)", "Hardware FLOPs utilization."),
    Field("mfu_percent", "e.model_ps / 10.0 / nullif(e.duration_ns, 0)", "Model FLOPs utilization."),
    Field("bound", "(select bound from verdict where id = e.verdict)", "compute or memory, by the roofline."),
    Field(
        "tensor_core_reason",
        "(select tensor_cores from verdict where id = e.verdict)",
        "Use of tensor cores, or the reason against it (docs/roofline.md).",
    ),
)
_TENSOR_CORES = {1: "used", 0: "not used", 2: "not applicable"}
_OF_EVENT = "event e left join operator o on o.id = e.operator"
_EVENT_ID = Field("id", "e.id", "Identifier; on the page it is the event launch:ID.")
_COPY_KIND = f"case when e.{IS_COPY} then 'copy' else 'set' end"

VIEWS = {
    "kernels": View(
        "A kernel that ran on a GPU.",
        (
            _EVENT_ID,
            _worker("e.id"),
            *_DEVICE,
            _step("e.id", "event"),
            Field("name", "n.name", "Name of the kernel."),
            Field("short_name", "n.short_name", "The name without return type, arguments and namespaces."),
            Field("kind", "n.kind", "gemm, conv, pointwise, ...: docs/roofline.md."),
            *_OPERATOR,
            *_time("e"),
            *_LAUNCH,
            *(
                Field(f"{what}_{axis}", f"g.{what}_{axis}", f"{text}, {axis}.")
                for what, text in (("grid", "Blocks of the grid"), ("block", "Threads of a block"))
                for axis in "xyz"
            ),
            Field("registers", "g.registers", "Registers of a thread."),
            Field("shared_memory_bytes", "g.shared_memory_bytes", "Shared memory of a block."),
            Field("tensor_cores", _words("e.tc", _TENSOR_CORES), "used, not used or not applicable; NULL is unknown."),
            *_WORK,
            *_SHARES,
        ),
        f"{_OF_EVENT} join kernel_name n on n.id = e.name left join geometry g on g.id = e.geometry "
        f"where e.{IS_KERNEL}",
    ),
    "copies": View(
        "A copy, or a set of memory, on a GPU.",
        (
            _EVENT_ID,
            _worker("e.id"),
            *_DEVICE,
            _step("e.id", "event"),
            Field("kind", _COPY_KIND, "copy or set."),
            Field("name", "n.name", "Name, with the direction of a copy."),
            Field("copied_bytes", "e.copied_bytes", "Bytes that were copied or set."),
            Field("copy_from", _words("e.copy_from", MEMORY_KINDS), "Kind of memory that it reads."),
            Field("copy_to", _words("e.copy_to", MEMORY_KINDS), "Kind of memory that it writes."),
            *_OPERATOR,
            *_time("e"),
            *_LAUNCH,
        ),
        f"{_OF_EVENT} join kernel_name n on n.id = e.name where (e.{IS_COPY} or e.{IS_SET})",
    ),
    "cpu_events": View(
        "An operator of the dispatcher (aten::mm) in a recording without a GPU.",
        (
            _EVENT_ID,
            _worker("e.id"),
            _step("e.id", "event"),
            Field("name", "n.name", "Name in the dispatcher."),
            *_OPERATOR,
            Field("start_ns", "e.start_ns", "Start, from the first event of the recording."),
            Field("own_ns", "e.duration_ns", "Its own time, without operators inside it."),
            Field("total_ns", "e.total_ns", "Its time with what runs inside it."),
            *_WORK,
        ),
        f"{_OF_EVENT} join kernel_name n on n.id = e.name where e.{ON_CPU}",
    ),
    "operators": View(
        "An operator: a place in the model, with its arguments and direction; sums over all steps and workers.",
        (
            *_OPERATOR,
            Field("parameters", "o.params", "Arguments of the call that decide its cost."),
            Field("tensor_core_eligible", "o.eligible", "1 if tensor cores could do it."),
            *(
                Field(name, f"sum(s.{name})", text)
                for name, text in (
                    ("calls", "Executions."),
                    ("kernels", "Kernels that they launched."),
                    ("kernel_ns", "Sum of the times of these kernels."),
                    ("gpu_ns", "Time in which its kernels, copies and sets ran, those at once counted once."),
                )
            ),
            Field("tensor_core_ns", "sum(s.tc_ns)", "Time of its kernels that used tensor cores."),
            Field(
                "cpu_ns",
                "case when sum(s.timed) > 0 then sum(s.cpu_ns) end",
                "Time of its calls on the host, without operators inside them; NULL is unknown.",
            ),
        ),
        f"operator o join op_stat s on s.operator = o.id and s.aggregation = {_FIRST} group by o.id",
    ),
    "calls": View(
        "An execution of an operator.",
        (
            Field("id", "x.id", "Identifier."),
            _worker("x.id"),
            _thread("x.thread"),
            _step("x.id", "op"),
            *_OPERATOR,
            Field("start_ns", "x.start_ns", "Start on the host, from the first event of the recording."),
            Field("end_ns", "x.end_ns", "End on the host."),
            Field("cpu_ns", "x.cpu_ns", "Its time on the host, without operators inside it; NULL is unknown."),
            Field("gpu_ns", "x.gpu_ns", "Time in which what it launched ran, at once counted once."),
            Field("kernels", "x.kernels", "Kernels that it launched."),
            Field("forward_id", "x.forward", "Of a backward: the call whose backward it is."),
        ),
        "op x join operator o on o.id = x.operator",
    ),
    "api_calls": View(
        "A call of the CUDA or HIP API.",
        (
            Field("id", "a.id", "Identifier."),
            _worker("a.id"),
            _thread("a.thread"),
            Field("name", "(select text from string where id = a.name)", "Name of the function."),
            Field("kind", _words("a.kind", dict(enumerate(API_KINDS))), f"One of {', '.join(API_KINDS)}."),
            *_time("a"),
            Field("call_id", "a.op", "Row of the view calls in which it was made; NULL outside of all."),
        ),
        "api a",
    ),
    "ranges": View(
        "A range of NVTX, an operator event of torch or a call of a Python function.",
        (
            Field("id", "r.id", "Identifier."),
            _worker("r.id"),
            _thread("r.thread"),
            Field(
                "kind",
                _words(
                    "r.kind",
                    {
                        PUSH_POP: "push/pop", START_END: "start/end", MARK: "mark", OPERATOR_EVENT: "operator",
                        PYTHON_FUNCTION: "python",
                    },
                ),
                "push/pop, start/end, mark, operator or python.",
            ),
            Field("name", "readable((select text from string where id = r.text))", "Name, as the page shows it."),
            Field("text", "(select text from string where id = r.text)", "Text, as recorded."),
            *_time("r"),
        ),
        "range r",
    ),
    "steps": View(
        "A step of a worker with what its time went to: the parts add up to the length.",
        (
            Field("worker", "(select name from worker where id = i.worker)", "Name of the process."),
            Field("step", "i.number", "Number of the step."),
            Field(
                "start_ns", "i.start_ns",
                "Start, from the first event of the recording: that on the host, or the end of the step before.",
            ),
            Field("end_ns", "i.end_ns", "End: that on the host, or of the last event on a GPU that it launched."),
            Field("host_start_ns", "i.host_start_ns", "Start on the host."),
            Field("host_end_ns", "i.host_end_ns", "End on the host."),
            Field("length_ns", "i.end_ns - i.start_ns - i.paused_ns", "Length, without pauses of the recorder."),
            Field("partial", "i.partial", "1 if the recording ends within it."),
            *(
                Field(f"{name}_ns", f"p.{name}_ns", text)
                for name, text in (
                    ("tc", "Kernels that use tensor cores."),
                    ("kernel", "Other kernels."),
                    ("memory", "Copies and sets."),
                    ("dataloader", "Waits for the data loader."),
                    ("io", "Reading and writing files; NULL if not recorded."),
                    ("cpu", "Operators and API calls on the host."),
                    ("other", "The rest."),
                )
            ),
        ),
        f"iteration i left join iteration_part p using (iteration_set, worker, number) where i.iteration_set = {_SET}",
    ),
    "collectives": View(
        "A kernel of a collective, as far as the recording describes it.",
        (
            Field("id", "c.event", "Row of the view kernels."),
            _worker("c.event"),
            Field("name", "c.name", "all_reduce, all_gather, ..."),
            Field("dtype", "c.dtype", "Type of the elements."),
            Field("sent_bytes", "c.sent_bytes", "Bytes of this rank's input."),
            Field("received_bytes", "c.received_bytes", "Bytes of this rank's output."),
            Field("process_group", "c.process_group", "Name of the group."),
            Field("ranks", "c.size", "Ranks of the group."),
            Field("number", "c.seq", "Number that the group gives its collectives."),
            *_time("e"),
        ),
        "collective c join event e on e.id = c.event",
    ),
    "memory_events": View(
        "Memory that an allocator gave (bytes > 0) or took back (bytes < 0).",
        (
            Field("id", "m.id", "Identifier."),
            _worker("m.id"),
            _thread("m.thread"),
            Field("time_ns", "m.time_ns", "Time, from the first event of the recording."),
            Field("device", "m.device", "Number of the GPU; NULL is the CPU."),
            Field("bytes", "m.bytes", "Bytes, less than 0 when taken back."),
            Field("allocated_bytes", "m.allocated_bytes", "In use after it."),
            Field("reserved_bytes", "m.reserved_bytes", "Held by the allocator after it."),
        ),
        "memory m",
    ),
    "workers": View(
        "A recorded process.",
        (
            Field("worker", "w.name", "Name, as in the other views."),
            Field("rank", "w.rank", "Rank; NULL is unknown."),
            Field("host", "w.host", "Name of its machine."),
            Field("pid", "w.pid", "Process id."),
            Field("process", "w.process", "Name of the program."),
            Field("start_ns", "w.start_ns", "Its first event, from the first of the recording."),
            Field("end_ns", "w.end_ns", "Its last event."),
        ),
        "worker w",
    ),
    "devices": View(
        "A GPU that a process saw.",
        (
            Field("worker", "(select name from worker where id = d.worker)", "Name of the process."),
            Field("device", "d.number", "Number."),
            Field("name", "d.name", "Product name."),
            Field("compute_capability", "d.compute_capability", "Compute capability."),
            Field("sm_count", "d.sm_count", "Multiprocessors."),
            Field("memory_bytes", "d.memory_bytes", "Memory."),
            Field("clock_hz", "d.clock_hz", "Highest clock."),
            Field("bandwidth_bytes_per_s", "d.bandwidth_bytes_per_s", "Bandwidth of its memory."),
            Field("events", "d.events", "Kernels, copies and sets that ran on it."),
        ),
        "device d",
    ),
    "facts": View(
        "A fact about the recording, its program or machine: version of torch, switches, optimizer.",
        (Field("name", "f.name", "Name."), Field("value", "f.value", "Value, as text.")),
        "meta f",
    ),
    "missing": View(
        "What the recording or its reading left out, by reason.",
        (Field("reason", "l.reason", "Reason."), Field("count", "l.count", "How many.")),
        "lost l",
    ),
}  # fmt: skip


def statements() -> list[str]:
    """Return the statements that make the views on a connection."""
    out = []
    for bound in ("event", "op"):
        out += [
            f"create temp table _step_of_{bound} (first integer primary key, last integer, number integer)",
            f"insert or ignore into _step_of_{bound} select first_{bound}, last_{bound}, number from iteration "
            f"where iteration_set = {_SET} and last_{bound} > first_{bound}",
        ]
    for name, view in VIEWS.items():
        fields = ", ".join(f"{field.sql} as {field.name}" for field in view.fields)
        out.append(f"create temp view {name} as select {fields} from {view.source}")
    return out
