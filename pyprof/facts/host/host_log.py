# SPDX-License-Identifier: Apache-2.0
"""Log of what a program did, in order: executions of operators, ranges of the user, waits for the data loader.

It is what steps are found in (`iteration_cuts`). Times are ns; rows are in the order of their starts.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from pyprof.core.marker import COLLECTION, SAVING, LayerMarker, UserMarker, decode
from pyprof.core.model import BACKWARD, BPROP, MARK, OPTIMIZER, RECOMPUTE, Bools, Ints
from pyprof.store import reads
from pyprof.store.files import Store
from pyprof.store.ids import first_id
from pyprof.store.kinds import OPERATOR_EVENT

OPTIMIZER_STEP = "Optimizer.step#"  # of torch.profiler, around the whole call
_OF_OPTIMIZER = ("Optimizer.step#", "Optimizer.zero_grad#", "Optimizer.closure#")
# They make, move or read tensors: a program does so outside of its steps, too.
_NO_COMPUTATION = re.compile(
    "arange|as_tensor|bernoulli|clone|contiguous|copy|cpu|cuda|detach|double|empty.*|equal|eye|fill|float|full.*|half|"
    "int|is_nonzero|item|lift_fresh|linspace|local_scalar_dense|long|normal|numpy|ones.*|rand.*|resize|scalar_tensor|"
    "set|tensor|to|to_copy|tolist|trunc_normal|uniform|zero.*|bfloat16|bool|pin_memory|record_stream"
)

_HAS_WEIGHTS = re.compile(r"linear|conv|norm|embedding|lstm|gru|rnn|^(?:addmm|mm|matmul)$")


class Spans(NamedTuple):
    """Intervals by start, ns. `key`: what each is, a number of an operator or text; `thread`: a row of `thread`."""

    start: Ints
    end: Ints
    key: Ints
    thread: Ints

    def take(self, index: Bools | Ints) -> Spans:
        return Spans(*(column[index] for column in self))


class Operators(NamedTuple):
    """Facts about each operator by its number.

    `type` and `site` (type, module, else line, and shapes of its weights) are codes of what is equal in them. `inside`:
    it is not what stands for API calls outside of operators. `step`: it is an optimizer's. `has_weights`: of a layer's.
    """

    type: Ints
    site: Ints
    inside: Bools
    forward: Bools
    backward: Bools
    step: Bools
    computes: Bools
    in_module: Bools
    has_shapes: Bools
    has_weights: Bools
    names: list[str]

    def code(self, name: str) -> int:
        """Return the code of a type; -1 if the recording has no such operator."""
        return self.names.index(name) if name in self.names else -1


def operators(store: Store) -> Operators:
    """Return the facts about the operators of a recording."""
    return store.cached("operators of steps", lambda: _operators(store), small=True)


def _operators(store: Store) -> Operators:
    rows = store.rows(
        """select id, type, coalesce(module, ''), coalesce(stack, -1), coalesce(shapes, ''), direction, phase,
                  unassociated from operator order by id"""
    )
    size = rows[-1][0] + 1 if rows else 0
    table = pd.DataFrame(rows, columns=["id", "type", "module", "stack", "shapes", "direction", "phase", "outside"])
    codes, names = pd.factorize(table["type"])
    table["weights"] = [_weights(kind, shapes) for kind, shapes in zip(table["type"], table["shapes"])]
    table.loc[table["module"] != "", "stack"] = -1  # a module is called from several lines
    site = table.groupby(["type", "module", "stack", "weights"], sort=False).ngroup()
    step = table["type"].str.endswith(".step") & (table["phase"] == OPTIMIZER)
    inside = table["outside"] == 0
    backward = inside & ((table["direction"] == BPROP) | table["phase"].isin([BACKWARD, RECOMPUTE]))
    forward = inside & ~backward & (table["phase"] != OPTIMIZER)
    computes = forward & ~table["type"].str.fullmatch(_NO_COMPUTATION)
    known = table["module"] != "", table["shapes"] != "", table["type"].str.contains(_HAS_WEIGHTS)
    columns = codes, site, inside, forward, backward, step, computes, *known

    def by_id(column: Any) -> Any:
        values = np.asarray(column)
        out = np.zeros(size, values.dtype)
        out[table["id"].to_numpy()] = values
        return out

    arrays: list[Any] = [by_id(column) for column in columns]
    arrays.append([str(name) for name in names])
    return Operators(*arrays)


def _weights(kind: str, shapes: str) -> str:
    """Return the shapes of an operator's weights, which tell one layer from another whatever its input is.

    >>> _weights("linear", "(16, 2, 32); (96, 32); (96,)"), _weights("addmm", "(96,); (32, 32); (32, 96)")
    ('(96, 32); (96,)', '(32, 96)')
    """
    if kind in ("mm", "addmm"):
        return shapes.rpartition("; ")[2]
    return shapes.partition("; ")[2] if kind != "embedding" and _HAS_WEIGHTS.search(kind) else ""


class HostLog:
    """The log of one worker."""

    def __init__(self, store: Store, worker: int):
        self.store, self.worker = store, worker
        self.operators = operators(store)
        self._ids = first_id(worker), first_id(worker + 1)

    @cached_property
    def executions(self) -> Spans:
        """Executions of operators, without what stands for API calls outside of operators."""
        columns = self.store.table("op", ("start_ns", "end_ns", "operator", "thread"), *self._ids)
        thread = np.where(columns["thread"].mask(), columns["thread"].values, -1)
        spans = Spans(columns["start_ns"].values, columns["end_ns"].values, columns["operator"].values, thread)
        return spans.take(self.operators.inside[spans.key])

    @cached_property
    def waits(self) -> Spans:
        """Waits of the training loop for its data loader."""
        rows = self.store.rows(
            """select start_ns, start_ns + duration_ns, -1, thread from dataloader
               where thread in (select id from thread where worker = ?) order by start_ns""",
            (self.worker,),
        )
        return Spans(*np.array(rows, np.int64).reshape(-1, 4).T)

    def _ranges(self, names: Sequence[str], select: Callable[[dict[str, Any]], Any]) -> dict[str, Any]:
        """Return columns of the ranges that are selected: of many, few are."""
        selected: list[dict[str, Any]] = []
        for part in self.store.parts("range", (*names, "kind", "seq"), *self._ids):
            columns: dict[str, Any] = {name: column.values for name, column in part.items()}
            columns["end_ns"] = columns["start_ns"] + columns["duration_ns"]
            columns |= {f"has_{name}": part[name].mask() for name in ("seq", *{"args"}.intersection(names))}
            keep = select(columns)
            selected.append({name: column[keep] for name, column in columns.items()})
        empty = dict.fromkeys((*names, "end_ns", "has_args"), np.empty(0, np.int64))
        return {name: np.concatenate([part[name] for part in selected]) for name in selected[0]} if selected else empty

    @cached_property
    def _texts(self) -> Spans:
        """Ranges with a length that are no operator events."""
        names = ("start_ns", "duration_ns", "text", "thread")
        columns = self._ranges(names, lambda part: (part["kind"] < MARK) & ~part["has_seq"])
        return Spans(*(columns[name] for name in ("start_ns", "end_ns", "text", "thread")))

    def _with_text(self, keep: Callable[[str], bool]) -> Spans:
        spans = self._texts
        texts = reads.texts_of(self.store, np.unique(spans.key))
        numbers = [number for number, text in texts.items() if keep(text)]
        return spans.take(np.isin(spans.key, np.array(numbers, np.int64)))

    def ranges_like(self, prefix: str) -> Spans:
        """Return the ranges whose text begins so."""
        return self._with_text(lambda text: text.startswith(prefix))

    @cached_property
    def ranges(self) -> Spans:
        """Outermost ranges of the user on each thread; those of optimizers and steps are none."""
        from pyprof.parse.paths import is_step

        def of_user(text: str) -> bool:
            return (
                isinstance(decode(text), UserMarker | LayerMarker)
                and not text.startswith((*_OF_OPTIMIZER, COLLECTION, SAVING))
                and not is_step(text)
            )

        return outermost(self._with_text(of_user))

    @cached_property
    def zeroed(self) -> Spans:
        """Calls of zero_grad, as torch.profiler records them."""
        return self.ranges_like("Optimizer.zero_grad#")

    def events_in(self, spans: Spans) -> tuple[Spans, Ints]:
        """Return the RecordFunction events within intervals, which do not overlap, and a number of the arguments of
        each."""

        def within(part: dict[str, Any]) -> Any:
            place = np.searchsorted(spans.start, part["start_ns"], side="right") - 1
            inside = (place >= 0) & (part["end_ns"] <= spans.end[place])
            return (part["kind"] == OPERATOR_EVENT) & inside & (part["thread"] == spans.thread[place])

        columns = self._ranges(("start_ns", "duration_ns", "text", "thread", "args"), within)
        names = ("start_ns", "end_ns", "text", "thread")
        return Spans(*(columns[name] for name in names)), np.where(columns["has_args"], columns["args"], -1)


def outermost(spans: Spans) -> Spans:
    """Return the intervals that are in no other of their thread."""
    keep = np.ones(len(spans.start), bool)
    for thread in np.unique(spans.thread).tolist():
        own = np.flatnonzero(spans.thread == thread)
        own = own[np.lexsort((-spans.end[own], spans.start[own]))]
        reached = np.r_[np.iinfo(np.int64).min, np.maximum.accumulate(spans.end[own])[:-1]]
        keep[own] = spans.end[own] > reached
    return spans.take(keep)
