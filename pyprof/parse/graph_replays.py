# SPDX-License-Identifier: Apache-2.0
"""Replays of graphs: kernels of one launch get back the operators that launched them when the graph was captured.

A server (vLLM, SGLang) captures its model into graphs once and replays them; a trace of a replay has one launch for
all kernels of a graph, and no operator. A trace of the capture, taken alongside, has the operators and the launches,
but no kernel ran. The two are joined by the graph's nodes if both record node ids, otherwise by the order of kernel
names.

A wrong match is worse than an unknown one. A replay is matched with every captured graph that it could be, and a
kernel gets only what all of these agree on: layers of the same shape agree on the operator and its shapes, not on
the module. If kernels are missing or there are more than were captured, only those are matched that have the same
position in every longest common subsequence.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np

from pyprof.core.model import KERNEL, Column, Ints, Ops, Thread, Trace
from pyprof.parse.join import link, nest_spans

_MIN_SHARE = 0.6  # of a replay's kernels that must be those of a captured graph, in order
_MAX_PAIRS = 16_000_000  # pairs of kernels that are compared
UNMATCHED = "kernels of graph replays that no captured graph explains for certain (kept)"
_BATCH = re.compile(r"execute_(\d+)_")
Chain = tuple[int, ...]


class Kernel(NamedTuple):
    """A kernel as it was captured: its name, its node, and the operator events around its launch, outermost first, as
    rows of the capture's ops."""

    name: str
    node: int | None
    chain: Chain


@dataclass
class Graph:
    """A captured graph. `capture` is the index of its trace, `batch` the batch size that it was captured for."""

    kernels: list[Kernel]
    capture: int
    batch: int | None = None

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(kernel.name for kernel in self.kernels)


class _Replay(NamedTuple):
    """A launch of a graph and its kernels in order, as rows of the trace's tables."""

    launch: int
    kernels: list[int]


def captured(trace: Trace, capture: int, batch: int | None = None) -> list[Graph]:
    """Return the graphs in a trace of their capture, in order: launches between the beginning and the end of a
    capture."""
    calls, names = trace.launches, trace.strings.texts
    has_name, has_node = calls.kernel.mask(), calls.node.mask()
    spans = nest_spans(trace)
    around = spans.enclosing(calls.thread, calls.start)
    graphs: list[Graph] = []
    open_: dict[int, Graph] = {}
    for row in np.lexsort((calls.end, calls.start)).tolist():
        name, thread = names[calls.name[row]], int(calls.thread[row])
        if "BeginCapture" in name:
            open_[thread] = Graph([], capture, batch)
        elif "EndCapture" in name and thread in open_:
            graphs.append(open_.pop(thread))
        elif thread in open_ and (has_name[row] or has_node[row]):
            chain: list[int] = []
            span = int(around[row])
            while span >= 0:
                if spans.event[span] >= 0:
                    chain.append(int(spans.event[span]))
                span = int(spans.parent[span])
            kernel = names[calls.kernel.values[row]] if has_name[row] else ""
            node = int(calls.node.values[row]) if has_node[row] else None
            open_[thread].kernels.append(Kernel(kernel, node, tuple(reversed(chain))))
    return [graph for graph in graphs if graph.kernels]


def attach(trace: Trace, captures: Sequence[Trace], batches: Sequence[int | None]) -> None:
    """Assign the operators of the captures to the kernels of graph replays. Changes the trace."""
    graphs = [graph for i, capture in enumerate(captures) for graph in captured(capture, i, batches[i])]
    replays = list(_replays(trace))
    if not graphs or not replays:
        return
    builder = _Builder(trace, captures)
    total = expected = matched = 0
    for replay, candidates in zip(replays, _candidates(trace, replays, graphs)):
        total += len(replay.kernels)
        expected += len(candidates[0].kernels if candidates else replay.kernels)
        matched += builder.add(replay, candidates)
    builder.finish()
    facts = {"kernels": total, "captured": expected, "matched": matched}
    trace.meta.update({f"graph_replay.{name}": str(count) for name, count in facts.items()})
    trace.meta["graph_replay.confidence"] = f"{200 * matched / max(total + expected, 1):.1f} %"
    trace.repair(UNMATCHED, total - matched)


def _replays(trace: Trace) -> Iterator[_Replay]:
    names = trace.strings.texts
    is_graph = np.array(["GraphLaunch" in name for name in names] or [False], bool)
    owner = np.array([thread.process for thread in trace.threads] or [0], np.int64)
    launch = link(trace.gpu, trace.launches, owner)
    kernels = np.flatnonzero((launch >= 0) & (trace.gpu.kind == KERNEL))
    kernels = kernels[is_graph[trace.launches.name[launch[kernels]]]]
    node = trace.gpu.graph_node
    # Nodes are numbered as they were captured; without them kernels of one stream run in that order.
    turn = node.values if node.mask()[kernels].all() else np.zeros(len(trace.gpu), np.int64)
    order = kernels[np.lexsort((trace.gpu.start[kernels], turn[kernels], trace.launches.start[launch[kernels]]))]
    if not len(order):
        return
    begins = np.flatnonzero(np.r_[True, launch[order][1:] != launch[order][:-1]]).tolist()
    for first, last in zip(begins, [*begins[1:], len(order)]):
        yield _Replay(int(launch[order[first]]), order[first:last].tolist())


def _candidates(trace: Trace, replays: list[_Replay], graphs: list[Graph]) -> list[list[Graph]]:
    """Return, for each replay, the captured graphs that it may be."""
    names = [tuple(trace.strings[trace.gpu.name[k]] for k in replay.kernels) for replay in replays]
    by_node = _by_node(trace, replays, graphs)
    out: list[list[Graph]] = []
    for chunk in _chunks(trace, replays):
        batch = _batch(trace, replays[chunk[0]])
        selection = [g for g in graphs if g.batch == batch] if any(g.batch == batch for g in graphs) else graphs
        sequences = [graph.names for graph in selection]
        targets = [_closest(names[j], sequences) for j in chunk]
        for j, indices in zip(chunk, _matching_graphs(targets, sequences)):
            out.append(by_node[j] or [selection[i] for i in indices])
    return out


def _kernel_positions(trace: Trace, replay: _Replay, graph: Graph) -> list[int]:
    """Return the position in a graph of each kernel of its replay, -1 where it is uncertain."""
    node = trace.gpu.graph_node
    by_node = {kernel.node: position for position, kernel in enumerate(graph.kernels) if kernel.node is not None}
    if by_node and node.mask()[replay.kernels].all():
        return [by_node.get(number, -1) for number in node.values[replay.kernels].tolist()]
    return certain([trace.strings[trace.gpu.name[k]] for k in replay.kernels], graph.names)


def _by_node(trace: Trace, replays: list[_Replay], graphs: list[Graph]) -> list[list[Graph]]:
    """Return the graph that has the nodes of each replay; empty if ids are missing on either side."""
    owners = {k.node: g for g in graphs for k in g.kernels if k.node is not None}
    node = trace.gpu.graph_node
    out: list[list[Graph]] = []
    for replay in replays:
        ids = [int(node.values[k]) for k in replay.kernels if node.mask()[k]]
        matches = {id(owners[n]): owners[n] for n in ids if n in owners}
        out.append(list(matches.values()) if len(matches) == 1 else [])
    return out


def _chunks(trace: Trace, replays: list[_Replay]) -> list[list[int]]:
    """Group replays inside one range of the user, which is one execution of the model."""
    spans = nest_spans(trace)
    calls = trace.launches
    launches = np.array([replay.launch for replay in replays], np.int64)
    span = spans.enclosing(calls.thread[launches], calls.start[launches])
    groups: dict[int, list[int]] = {}
    for j, root in enumerate(span.tolist()):
        while root >= 0 and spans.parent[root] >= 0:
            root = int(spans.parent[root])
        groups.setdefault(root, []).append(j)
    ordered = sorted(groups.values())
    flat = [j for chunk in ordered for j in chunk]
    return ordered if flat == sorted(flat) else [list(range(len(replays)))]


def _batch(trace: Trace, replay: _Replay) -> int | None:
    """Return the batch size of an execution, as vLLM writes it into the range around it."""
    launch, ranges = replay.launch, trace.ranges
    start, thread = trace.launches.start[launch], trace.launches.thread[launch]
    around = np.flatnonzero((ranges.thread == thread) & (ranges.start <= start) & (ranges.end.values >= start))
    for row in around.tolist():
        if match := _BATCH.match(trace.strings[ranges.text[row]]):
            return int(match[1])
    return None


def _closest(names: tuple[str, ...], sequences: Sequence[tuple[str, ...]]) -> tuple[str, ...] | None:
    """Return the captured sequence that equals a replay's, or is its only nearest one."""
    distinct = list(dict.fromkeys(sequences))
    if names in distinct:
        return names
    shares = sorted(((_share(names, sequence), sequence) for sequence in distinct), reverse=True)
    if not shares or shares[0][0] < _MIN_SHARE or (len(shares) > 1 and shares[1][0] == shares[0][0]):
        return None
    return shares[0][1]


def _share(first: Sequence[str], second: Sequence[str]) -> float:
    if not first or not second or len(first) * len(second) > _MAX_PAIRS:
        return 0.0
    return 2 * int(_lengths(*_encode(first, second))[0, 0]) / (len(first) + len(second))


def _matching_graphs(targets: list[tuple[str, ...] | None], sequences: Sequence[tuple[str, ...]]) -> list[list[int]]:
    """Return the indices in `sequences` that each target may be, if both continue in the same order."""
    n, m = len(targets), len(sequences)
    if n and n % m == 0 and all(target == sequences[j % m] for j, target in enumerate(targets) if target is not None):
        return [[] if target is None else [j % m] for j, target in enumerate(targets)]
    offsets = [i for i in range(m - n + 1) if list(sequences[i : i + n]) == targets]
    if offsets:
        return [[i + j for i in offsets] for j in range(n)]
    return [
        [] if target is None else [i for i, sequence in enumerate(sequences) if sequence == target]
        for target in targets
    ]


def certain(first: Sequence[str], second: Sequence[str]) -> list[int]:
    """Return, for each item of `first`, its position in `second`, or -1 unless every longest common subsequence gives
    it the same one.

    >>> certain("abd", "abcd"), certain("abbc", "abc"), certain("abc", "abbc"), certain("ab", "ba")
    ([0, 1, 3], [0, -1, -1, 2], [0, -1, 3], [-1, -1])
    """
    n, m = len(first), len(second)
    if list(first) == list(second):
        return list(range(n))
    if n * m > _MAX_PAIRS:
        return [-1] * n
    a, b = _encode(first, second)
    tails = _lengths(a, b)  # of first[i:], second[j:]
    heads = _lengths(a[::-1], b[::-1])[::-1, ::-1]  # of first[:i], second[:j]
    longest, out = tails[0, 0], []
    for i in range(n):
        partners = np.flatnonzero((a[i] == b) & (heads[i, :m] + 1 + tails[i + 1, 1:] == longest))
        may_be_left_out = bool((heads[i] + tails[i + 1] == longest).any())
        out.append(int(partners[0]) if len(partners) == 1 and not may_be_left_out else -1)
    return out


def _encode(first: Sequence[str], second: Sequence[str]) -> tuple[Ints, Ints]:
    codes: dict[str, int] = {}
    a, b = ([codes.setdefault(name, len(codes)) for name in sequence] for sequence in (first, second))
    return np.array(a, np.int64), np.array(b, np.int64)


def _lengths(first: Ints, second: Ints) -> Ints:
    """Return the length of the longest common subsequence of each pair of tails, (n + 1, m + 1)."""
    out = np.zeros((len(first) + 1, len(second) + 1), np.int32)
    for i in range(len(first) - 1, -1, -1):
        below = out[i + 1]
        best = np.maximum(below[:-1], np.where(second == first[i], below[1:] + 1, 0))
        out[i, :-1] = np.maximum.accumulate(best[::-1])[::-1]
    return out


class _Builder:
    """Writes the operators of replays into a trace: events of 1 ns on a thread of their own, of which only the order
    and the nesting have a meaning. Kernels point at them (`Gpu.op`)."""

    def __init__(self, trace: Trace, captures: Sequence[Trace]):
        self._trace, self._captures = trace, captures
        self._stacks = []
        for capture in captures:
            self._stacks.append(len(trace.stacks))
            trace.stacks = [*trace.stacks, *capture.stacks]
        self._rows: list[list[int]] = []  # thread, start, end, scope, name, text, stack
        self._threads: dict[int, int] = {}
        self._owner = np.array(trace.gpu.op)

    def add(self, replay: _Replay, candidates: list[Graph]) -> int:
        """Add the operators of one replay; return the number of its kernels that got one."""
        trace = self._trace
        places = [_kernel_positions(trace, replay, graph) for graph in candidates]
        clock = int(trace.launches.start[replay.launch])
        thread = self._thread(int(trace.launches.thread[replay.launch]))
        open_: list[tuple[int, int]] = []  # row of the capture, row of ours
        matched = 0
        for position, kernel in enumerate(replay.kernels):
            row_positions = [index[position] for index in places]
            if not row_positions or min(row_positions) < 0:
                continue
            captured_kernels = [graph.kernels[index] for graph, index in zip(candidates, row_positions)]
            chain, operators = self._common(candidates, captured_kernels)
            if not chain:
                continue
            keep = 0
            while keep < min(len(open_), len(chain)) and open_[keep][0] == chain[keep]:
                keep += 1
            clock = self._close(open_, keep, clock)
            for row, (name, text, stack) in zip(chain[keep:], operators[keep:]):
                open_.append((row, len(self._rows)))
                self._rows.append([thread, clock, clock, 0, name, text, stack])
                clock += 1
            self._owner[kernel] = len(trace.ops) + open_[-1][1]
            clock += 1
            matched += 1
        self._close(open_, 0, clock)
        return matched

    def _close(self, open_: list[tuple[int, int]], keep: int, clock: int) -> int:
        while len(open_) > keep:
            clock += 1
            self._rows[open_.pop()[1]][2] = clock
        return clock

    def _thread(self, launching: int) -> int:
        """Return the artificial thread for the replays that a thread launches."""
        if launching not in self._threads:
            trace = self._trace
            self._threads[launching] = len(trace.threads)
            process, tid = trace.threads[launching]
            trace.threads = [*trace.threads, Thread(process, -1 - tid)]
        return self._threads[launching]

    def _common(self, graphs: list[Graph], kernels: list[Kernel]) -> tuple[Chain, list[tuple[int, int, int]]]:
        """Return the chain of operators that all candidates share, as rows of the first candidate's capture, with name,
        text and stack of each in this trace; empty if they differ."""
        chains = [self._told(graph.capture, kernel.chain) for graph, kernel in zip(graphs, kernels)]
        if len({len(operator) for operator in chains}) != 1:
            return (), []
        out = []
        for level in zip(*chains):
            if len({operator[:2] for operator in level}) != 1:
                return (), []
            stacks = {operator[2] for operator in level}
            out.append((*level[0][:2], stacks.pop() if len(stacks) == 1 else -1))
        return kernels[0].chain, out

    def _told(self, capture: int, chain: Chain) -> list[tuple[int, int, int]]:
        """Translate a chain of a capture into name, text and stack codes of this trace."""
        trace, captured, first = self._trace, self._captures[capture], self._stacks[capture]
        out = []
        for row in chain:
            text = int(captured.ops.text[row])
            code = trace.strings.code(captured.strings[text])
            if text in captured.calls:
                trace.calls[code] = captured.calls[text]
            stack = int(captured.ops.stack[row])
            name = trace.strings.code(captured.strings[captured.ops.name[row]])
            out.append((name, code, first + stack if stack >= 0 else -1))
        return out

    def finish(self) -> None:
        """Append the operators to the trace."""
        trace, n = self._trace, len(self._rows)
        table = np.array(self._rows, np.int64).reshape(n, 7).T
        thread, start, end, scope, name, text, stack = (column.astype(np.int64) for column in table)
        missing = Column.missing(n)
        new = Ops(thread, start, end, scope, name, text, missing, missing, stack, Column(np.arange(n)))
        trace.ops = _concatenate(trace.ops, new)
        trace.gpu = replace(trace.gpu, op=self._owner)


def _concatenate(first: Ops, second: Ops) -> Ops:
    columns: dict[str, Ints | Column] = {}
    for name, a in vars(first).items():
        b = getattr(second, name)
        if isinstance(a, Column):
            columns[name] = Column(np.r_[a.values, b.values], np.r_[a.mask(), b.mask()])
        else:
            columns[name] = np.r_[a, b]
    return Ops(**columns)  # type: ignore[arg-type]
