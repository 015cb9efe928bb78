# SPDX-License-Identifier: Apache-2.0
"""Traces of torch.profiler (`export_chrome_trace`, `tensorboard_trace_handler`): Chrome trace JSON, plain or gzip.

Kernels belong to the operator around their launch on its thread; the trace's "External id" is of several kinds: it is
a check, and a link only where nothing has a correlation. Times are integers of ns. Whatever a trace leaves out stays
unknown: shapes, stacks, memory and modules are present only if the profiler was configured to record them. Source:
libkineto (output_json.cpp) and torch/csrc/profiler of the versions since 1.8.1; see `tracejson`.
"""

from __future__ import annotations

import re
from functools import cached_property
from operator import itemgetter
from pathlib import Path
from typing import Any

import numpy as np

from pyprof.core import intervals
from pyprof.core.api_names import STARTS_WORK, api_kind
from pyprof.core.errors import FormatError
from pyprof.core.marker import encode, is_backward
from pyprof.core.model import (
    KERNEL,
    MEMCPY,
    PUSH_POP,
    Bools,
    Call,
    Collectives,
    Column,
    Functions,
    Gpu,
    Ints,
    Io,
    Launches,
    Memory,
    Ops,
    Process,
    Ranges,
    Steps,
    Thread,
    Trace,
)
from pyprof.parse import limits
from pyprof.parse.formats import FORMATS
from pyprof.parse.heads import Head
from pyprof.parse.join import link
from pyprof.parse.trace_builder import Clock, sole_owner
from pyprof.parse.tracejson import (
    communication,
    convolutions,
    experts,
    external_ids,
    facts,
    graph_captures,
    headers,
    pieces,
    requests,
    shared_numbers,
)
from pyprof.parse.tracejson import text as texts
from pyprof.parse.tracejson.arguments import call
from pyprof.parse.tracejson.columns import Collector, Parts
from pyprof.parse.tracejson.events import chunks, document
from pyprof.parse.tracejson.renumber import renumber
from pyprof.parse.tracejson.stacks import Stacks, parse_text

_STEP = re.compile(r"ProfilerStep#(\d{1,15})")
_JSON_START = re.compile(rb"\xef?\xbb?\xbf?\s*(?:\{\s*[\"}]|\[\s*[{\]])")


@FORMATS.register("kineto")
class Kineto:
    @staticmethod
    def sniff(path: Path) -> bool:
        """Return whether the file begins like JSON; `load` refuses other JSON than a trace."""
        return _JSON_START.match(texts.head(path)) is not None

    @staticmethod
    def head(path: Path) -> Head:
        return headers.read(path)

    @staticmethod
    def load(path: Path) -> Trace:
        trace = read(path)
        shared_numbers.untangle(trace)
        graph_captures.join(trace, path, read)
        requests.add_sequence_lengths(trace)
        return trace


def read(path: Path) -> Trace:
    """Read one file without its companions."""
    lost: dict[str, int] = {}
    header, collector = pieces.read(path, lost) or _whole(path, lost)
    collector.close()
    renumber(collector)
    trace = _Builder(path, header, collector).trace()
    if not len(trace.ops) and not len(trace.gpu):
        raise FormatError(
            f"{path}: no operators and no kernels among {collector.count} events{trace.losses()}. Record with "
            "torch.profiler and the activities CPU and CUDA."
        )
    return trace


def _whole(path: Path, lost: dict[str, int]) -> tuple[dict[str, Any], Collector]:
    """Return the fields beside the events, and the events. Raises FormatError."""
    trace = document(texts.read(path, lost), lost)
    if trace is None:
        raise FormatError(
            f"{path} is JSON without a list of trace events; expected a trace that torch.profiler wrote "
            "(export_chrome_trace)."
        )
    collector = Collector(lost)
    collector.count = len(trace.events)
    for position, events in enumerate(chunks(trace, lost)):
        collector.add(events, position)
    return trace.facts, collector


class _Builder:
    """Builds a Trace from columns of events."""

    def __init__(self, path: Path, header: dict[str, Any], collector: Collector):
        self.path, self.header, self.events = path, header, collector
        self.strings, self.lost = collector.strings, collector.lost
        base = self.header.get("baseTimeNanoseconds")
        self.base = base if type(base) is int and abs(base) < 1 << 62 else 0
        keys = [*collector.threads]
        pids = sorted({pid for pid, _ in keys})
        self.threads = [Thread(pids.index(pid), tid) for pid, tid in keys]
        self.pids = pids
        self.process_of_thread = np.array([t.process for t in self.threads] or [0], np.int32)

    def trace(self) -> Trace:
        e = self.events
        self.slack = self._slack()
        functions = self._functions()
        stacks = Stacks(functions, self.strings, self.slack)
        ops = self._ops(stacks)
        launches = self._launches(stacks, ops)
        text_stacks = [*map(parse_text, e.call_stacks)]  # behind the entries, which are complete now
        ops.stack = np.where(ops.stack < -1, -2 - ops.stack + len(stacks.entries), ops.stack).astype(np.int32)
        ranges, steps = self._ranges()
        gpu = self._gpu(launches)
        devices = facts.devices(self.header.get("deviceProperties"))
        used = np.unique(gpu.device.values[gpu.device.mask()]).tolist()
        if used and facts.is_rocm(devices, (self.strings[code] for code in np.unique(launches.name).tolist())):
            devices = facts.agent_devices(devices, used)
        trace = Trace(
            path=str(self.path), format="kineto", strings=self.strings, processes=self._processes(),
            threads=self.threads, ranges=ranges, ops=ops, launches=launches, gpu=gpu,
            io=Io(*(np.empty(0, np.int64) for _ in range(4))), steps=steps, functions=functions, memory=self._memory(),
            collectives=self._collectives, stacks=[*stacks.entries, *text_stacks], calls=self.calls, slack=self.slack,
            devices=devices, meta=facts.meta(self.header), lost=e.lost,
        )  # fmt: skip
        self._check(trace)
        Clock().start_at_zero(trace)
        trace.t0 += self.base
        return trace

    def _thread(self, parts: Parts) -> Ints:
        out: Ints = parts.values("thread", np.int32)
        return out

    def _slack(self) -> int:
        """Return the rounding of times in ns, by which two events may overlap: 1000 for traces in whole microseconds
        (until 2024), else 1."""
        e = self.events
        for parts in (e.operators, e.launches, e.devices, e.functions):
            if (parts.values("start") % 1000).any() or (parts.values("end") % 1000).any():
                return 1
        return 1000

    def _functions(self) -> Functions:
        events = self.events.functions
        functions = Functions(
            self._thread(events),
            events.values("start"),
            events.values("end"),
            events.values("name", np.int32),
        )
        return limits.functions(functions, self.lost)

    def _ops(self, stacks: Stacks) -> Ops:
        """Build the operators. Stack n of those that are recorded as texts in events is -2 - n, until `trace` knows how
        many others there are."""
        import pandas as pd  # only here: the other formats do not need it

        from pyprof.parse.tracejson import forward

        columns = self.events.operators
        thread, start, name = self._thread(columns), columns.values("start"), columns.values("name", np.int32)
        self.calls: dict[int, Call] = {}
        codes = [self._intern(call(key)._replace(flops=flops)) for key, flops in self.events.signatures]
        seq, text_stack = columns.column("seq"), columns.values("stack", np.int32)
        backward = np.array([is_backward(text) for text in self.strings.texts] or [False], bool)
        flows = self.events.flows
        arrows = pd.DataFrame({
            "thread": self._thread(flows), "time": flows.values("time"), "number": flows.values("number"),
            "begins": flows.values("begins", bool),
        })  # fmt: skip
        text = np.array(codes or [0], np.int32)[columns.values("signature", np.int32)]
        seq_number = Column(seq.values, seq.mask() & (seq.values >= 0))
        origin = forward.threads(
            thread,
            start,
            name,
            seq_number,
            columns.column("forward"),
            self.process_of_thread,
            self.strings,
            arrows,
        )
        end = columns.values("end")
        events = convolutions.Operators(thread, start, end, text, seq_number, origin)
        text = convolutions.complete(events, dict(self.calls), self._intern)
        text = experts.complete(events._replace(text=text), dict(self.calls), self._intern)
        return Ops(
            thread=thread, start=start, end=end, scope=backward[name].astype(np.int8), name=name,
            text=self._with_collectives(thread, start, end, name, text), seq=seq_number,
            forward_thread=origin, order=columns.column("order"),
            stack=np.where(text_stack >= 0, -2 - text_stack, stacks.at(thread, start)),
        )  # fmt: skip

    def _intern(self, value: Call) -> int:
        """Store a call and its text, and return the text's code."""
        code = self.strings.code(encode(value))
        self.calls[code] = value
        return code

    def _with_collectives(self, thread: Ints, start: Ints, end: Ints, name: Ints, text: Ints) -> Ints:
        """Return the texts of operators; those of collectives get the recorded sizes and types of messages."""
        collectives = self._collectives
        keys = zip(collectives.thread.tolist(), collectives.start.tolist(), collectives.end.tolist())
        described = {key: value for key, gpu, value in zip(keys, collectives.gpu.tolist(), collectives.what) if gpu < 0}
        resolved = communication.calls(thread, start, end, name, text, self.calls, self.strings.texts, described)
        if resolved:
            text = text.copy()
            for row, value in sorted(resolved.items(), key=lambda item: encode(item[1])):
                text[row] = self._intern(value)
        return text

    def _launches(self, stacks: Stacks, ops: Ops) -> Launches:
        columns = self.events.launches
        thread, start, correlation = self._thread(columns), columns.values("start"), self._correlations[0]
        stack = np.full(len(start), -1, np.int32)
        outside = np.flatnonzero(~_inside(ops, thread, start))
        stack[outside] = stacks.at(thread[outside], start[outside])
        kernel = columns.values("kernel", np.int32)
        return Launches(
            thread=thread, start=start, end=columns.values("end"), name=columns.values("name", np.int32), stack=stack,
            correlation=np.where(correlation.mask(), correlation.values, -1),
            kernel=Column(np.maximum(kernel, 0), kernel >= 0), node=columns.column("node"),
        )  # fmt: skip

    @cached_property
    def _correlations(self) -> tuple[Column, Column]:
        """Return the correlations of API calls and of device events; where no event has one, numbers from equal
        External ids."""
        calls, devices = self.events.launches, self.events.devices
        own = calls.column("correlation"), devices.column("correlation")
        if own[0].mask().any() or own[1].mask().any():
            return own
        starts = [api_kind(text) in STARTS_WORK for text in self.strings.texts]
        works = np.array([*starts, False], bool)[calls.values("name", np.int32)]
        return external_ids.pair(calls.column("external"), works, devices.column("external"))

    def _operators_of(self, correlation: Column) -> Ints:
        """Return the operator of each device event, -1 where its launch decides: by equal External ids, if nothing in
        the file has the number of a launch."""
        ids = self.events.operators.column("external"), self.events.devices.column("external")
        if correlation.mask().any() or not len(ids[0].values):
            return np.full(len(correlation.values), -1, np.int32)
        starts = self.events.operators.values("start"), self.events.devices.values("start")
        return external_ids.operators(*ids, *starts)

    def _ranges(self) -> tuple[Ranges, Steps]:
        """Return the ranges of the user, and the steps among them."""
        columns = self.events.annotations
        thread, start, end, name = (
            self._thread(columns),
            columns.values("start"),
            columns.values("end"),
            columns.values("name", np.int32),
        )
        numbers = {
            code: int(match[1]) for code in np.unique(name).tolist() if (match := _STEP.fullmatch(self.strings[code]))
        }
        marks = np.flatnonzero(np.isin(name, list(numbers)))
        marks = marks[np.argsort(start[marks], kind="stable")]
        steps = Steps(
            self.process_of_thread[thread[marks]],
            np.array([numbers[code] for code in name[marks].tolist()], np.int64),
            start[marks],
            end[marks],
        )
        n = len(start)
        return Ranges(
            thread=thread, start=start, end=Column(end), text=name, operator=np.zeros(n, bool),
            kind=np.full(n, PUSH_POP, np.int8), seq=Column.missing(n), domain=np.full(n, self.strings.code("")),
        ), steps  # fmt: skip

    def _gpu(self, launches: Launches) -> Gpu:
        columns = self.events.devices
        name, copies = columns.values("name", np.int32), facts.copies(self.strings.texts)
        renamed = np.arange(max(len(self.strings), 1))
        source, target = (np.full(len(renamed), -1) for _ in range(2))
        for code, copy in copies.items():
            renamed[code] = self.strings.code(copy.name)
            source[code] = -1 if copy.source is None else copy.source
            target[code] = -1 if copy.target is None else copy.target
        kind = columns.values("kind", np.int8)
        ends = [Column(side[name], (side[name] >= 0) & (kind == MEMCPY)) for side in (source, target)]
        name = np.where(kind == KERNEL, name, renamed[name])
        node, correlation = columns.column("node"), self._correlations[1]
        plain = ("device", "context", "stream", "registers", "shared_memory", "bytes", "occupancy")
        return Gpu(
            process=self._owner(launches, correlation), start=columns.values("start"), end=columns.values("end"),
            kind=kind, name=name.astype(np.int32), grid=columns.column("grid", (3,)),
            block=columns.column("block", (3,)),
            correlation=correlation, graph_node=Column(node.values, node.mask() & (node.values != 0)),
            source_kind=ends[0], target_kind=ends[1], op=self._operators_of(correlation),
            **{key: columns.column(key) for key in plain},
        )  # fmt: skip

    def _owner(self, launches: Launches, correlation: Column) -> Ints:
        """Return the process of each GPU event: the one that runs operators or launches, if there is only one;
        otherwise the one whose launch it is."""
        n = len(correlation.values)
        processes = np.unique(
            np.r_[self.process_of_thread[self._thread(self.events.operators)], self.process_of_thread[launches.thread]]
        )
        if len(processes) <= 1:
            return np.full(n, processes[0] if len(processes) else 0, np.int32)
        return sole_owner(self.process_of_thread[launches.thread], launches.correlation, correlation)

    def _memory(self) -> Memory:
        events = self.events.allocations
        columns = {name: events.column(name) for name in ("device", "address", "allocated", "reserved")}
        return Memory(thread=self._thread(events), time=events.values("time"), bytes=events.values("bytes"), **columns)

    @cached_property
    def _collectives(self) -> Collectives:
        events = self.events.collectives
        table = np.array([row[:4] for row in events] or np.empty((0, 4)), np.int64)
        values = [facts.collective(name, args) for *_, name, _, args in events]
        return Collectives(table[:, 0], table[:, 1], table[:, 2], table[:, 3], values)

    def _processes(self) -> list[Process]:
        rank = facts.rank(self.header)
        names = {pid: name for _, pid, name in sorted(self.events.process_names, key=itemgetter(0))}
        host = self.header.get("host_name")
        pids = self.pids or [0]
        return [Process(pid, names.get(pid), rank, host if isinstance(host, str) else None) for pid in pids]

    def _check(self, trace: Trace) -> None:
        """Count the kernels whose External id contradicts containment. If that is most of them, kernels and operators
        are numbered separately, as in traces of 2022 and 2023, and nothing is counted."""
        external, operator_id = (
            self.events.devices.column("external"),
            self.events.operators.column("external"),
        )
        launch = link(trace.gpu, trace.launches, self.process_of_thread)
        both = np.flatnonzero((launch >= 0) & external.mask())
        with_id = np.flatnonzero(operator_id.mask())
        if not len(both) or not len(with_id):
            return
        order = with_id[np.argsort(operator_id.values[with_id], kind="stable")]
        position = np.minimum(np.searchsorted(operator_id.values[order], external.values[both]), len(order) - 1)
        op = order[position]
        same = operator_id.values[op] == external.values[both]
        launches, ops = launch[both], trace.ops
        begins, calls = trace.launches.start[launches], trace.launches
        outside = (ops.thread[op] != calls.thread[launches]) | (begins < ops.start[op]) | (begins > ops.end[op])
        wrong = int((same & outside).sum())
        if wrong * 2 < int(same.sum()):
            trace.repair(
                "GPU events whose External id is of another operator than the one around their launch (kept)",
                wrong,
            )


def _inside(ops: Ops, thread: Ints, time: Ints) -> Bools:
    """Return whether an operator runs on a thread at each moment."""
    out = np.zeros(len(time), bool)
    of_thread = dict(intervals.groups(ops.thread))
    for number, index in intervals.groups(thread):
        rows = of_thread.get(number)
        if rows is not None:
            rows = rows[np.argsort(ops.start[rows], kind="stable")]
            position = np.searchsorted(ops.start[rows], time[index], side="right") - 1
            reached = np.maximum.accumulate(ops.end[rows])
            out[index] = (position >= 0) & (reached[np.maximum(position, 0)] > time[index])
    return out
