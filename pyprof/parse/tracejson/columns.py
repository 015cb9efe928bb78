# SPDX-License-Identifier: Apache-2.0
"""Events sorted by what they are, as columns.

What runs on a device carries the device's number as its process and the stream as its thread; everything else, those of
a thread.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np

from pyprof import intervals
from pyprof.marker import is_backward, is_qualified
from pyprof.model import KERNEL, MEMCPY, MEMSET, Column, Ints, Strings
from pyprof.parse.tracejson.arguments import Key
from pyprof.parse.tracejson.events import Event, arguments
from pyprof.parse.tracejson.fields import (
    ALLOCATION,
    ANNOTATION,
    DECODERS,
    DEVICE_COPY,
    DEVICE_KERNEL,
    DEVICE_SET,
    EITHER,
    FLOW,
    IGNORED,
    LAUNCH,
    OPERATOR,
    PYTHON,
    AllocationArgs,
    DeviceArgs,
    LaunchArgs,
    MetadataArgs,
    OperatorArgs,
    of_category,
)
from pyprof.parse.tracejson.numeric import either, integers, number_of, triples
from pyprof.parse.tracejson.times import nanoseconds

_DEVICE_KINDS = {DEVICE_KERNEL: KERNEL, DEVICE_COPY: MEMCPY, DEVICE_SET: MEMSET}
_LAST = np.iinfo(np.int64).max
TIMELESS = "events without a time or a length"


class Parts:
    """Columns in pieces, as they come."""

    def __init__(self) -> None:
        self._pieces: dict[str, list[Any]] = defaultdict(list)

    def add(self, **columns: Any) -> None:
        for name, column in columns.items():
            self._pieces[name].append(column)

    def values(self, name: str, dtype: Any = np.int64) -> Any:
        """A column without gaps."""
        pieces = self._pieces.get(name)
        if not pieces:
            return np.empty(0, dtype)
        joined = pieces[0] if len(pieces) == 1 else np.concatenate(pieces)
        return joined if dtype is None else joined.astype(dtype, copy=False)

    def sort(self, *names: str) -> Ints:
        """Sort all columns by some of them, numbers that are missing last; returns the order."""
        for name, pieces in self._pieces.items():
            self._pieces[name] = [
                self.column(name) if isinstance(pieces[0], Column) else self.values(name, None)
            ]
        keys = [self._pieces[name][0] if name in self._pieces else None for name in names]
        plain = [
            np.where(k.mask(), k.values, _LAST) if isinstance(k, Column) else k for k in keys if k is not None
        ]
        order = intervals.order_by(*plain) if plain else np.empty(0, np.int64)
        if (order[1:] < order[:-1]).any():
            for pieces in self._pieces.values():
                pieces[0] = pieces[0].take(order)
        return order

    def renumber(self, name: str, place: Ints) -> None:
        """Replace the numbers of a column: each by what stands at its place."""
        if name in self._pieces:
            self._pieces[name] = [place[piece] for piece in self._pieces[name]]

    def column(self, name: str, shape: tuple[int, ...] = ()) -> Column:
        """A column of which some may be missing."""
        pieces: list[Column] = self._pieces.get(name, [])
        if not pieces:
            return Column(np.empty((0, *shape), np.int64))
        values = np.concatenate([piece.values for piece in pieces])
        if all(piece.present is None for piece in pieces):
            return Column(values)
        return Column(values, np.concatenate([piece.mask() for piece in pieces]))


class Collector:
    """Takes events and keeps columns. Names and texts are codes in `strings`, threads numbers in `threads`."""

    def __init__(self, lost: dict[str, int]):
        self.lost = lost
        self.strings = Strings()
        self.threads: dict[tuple[int, int], int] = {}
        self.signatures: dict[Key, int] = {}
        self.call_stacks: dict[str, int] = {}
        self.process_names: dict[int, str] = {}
        self.operators, self.annotations, self.launches, self.functions = Parts(), Parts(), Parts(), Parts()
        self.allocations, self.flows, self.devices = Parts(), Parts(), Parts()
        # Of collectives: the device event (-1: none), thread, start and end, name, and what is said.
        self.told: list[tuple[int, int, int, int, str, OperatorArgs | DeviceArgs]] = []
        self.n_devices = 0
        self._categories: dict[str | None, int | None] = {}
        self._names: dict[Any, int] = {}
        self._triples: dict[bytes, Any] = {}

    def add(self, events: list[Event]) -> None:
        """Some more events."""
        sorted_: dict[int, list[Event]] = defaultdict(list)
        categories = self._categories
        unknown: dict[str | None, int] = defaultdict(int)
        for event in events:
            if event.ph == "X":
                kind = categories.get(event.cat, -1)
                if kind == -1:
                    kind = categories[event.cat] = of_category(event.cat)
                if kind is None:
                    unknown[event.cat] += 1
                elif kind != IGNORED:
                    sorted_[kind].append(event)
            elif event.ph in ("s", "f"):
                if of_category(event.cat) == FLOW:
                    sorted_[FLOW].append(event)
            elif event.ph in ("i", "I"):
                if event.name == "[memory]":
                    sorted_[ALLOCATION].append(event)
            elif event.ph == "M":
                self._metadata(event)
        for category, number in unknown.items():
            self._lose(f"events of a category that is not known, {str(category)[:80]!r}", number)
        if EITHER in sorted_:
            self._split(sorted_)
        for kind, take in (
            (OPERATOR, self._operators), (ANNOTATION, self._annotations), (LAUNCH, self._launches),
            (PYTHON, self._functions), (ALLOCATION, self._allocations), (FLOW, self._flows),
            (DEVICE_KERNEL, self._devices), (DEVICE_COPY, self._devices), (DEVICE_SET, self._devices),
        ):  # fmt: skip
            if sorted_.get(kind):
                take(sorted_[kind], kind)

    def _lose(self, reason: str, number: int) -> None:
        if number:
            self.lost[reason] = self.lost.get(reason, 0) + number

    @staticmethod
    def _split(sorted_: dict[int, list[Event]]) -> None:
        """Traces of 2021 have one category for operators and for ranges of the user: a name tells, or inputs do."""
        verdicts: dict[str, bool] = {}
        for event in sorted_[EITHER]:
            name = event.name
            verdict = verdicts.get(name)
            if verdict is None:
                verdict = verdicts[name] = (
                    is_qualified(name)
                    or is_backward(name)
                    or (name.isidentifier() and b'"Input type"' in bytes(event.args))
                )
            sorted_[OPERATOR if verdict else ANNOTATION].append(event)

    def _timed(self, events: list[Event]) -> tuple[list[Event], Ints, Ints]:
        """Events with their starts and ends; those without are dropped and counted."""
        start, length = nanoseconds([e.ts for e in events]), nanoseconds([e.dur for e in events])
        good = start.mask() & length.mask() & (length.values >= 0)
        if not good.all():
            self._lose(TIMELESS, int((~good).sum()))
            events = [event for event, ok in zip(events, good.tolist()) if ok]
            start, length = start.take(np.flatnonzero(good)), length.take(np.flatnonzero(good))
        return events, start.values, start.values + length.values

    def _thread(self, events: Iterable[Event]) -> Ints:
        known, out = self._names, []
        for event in events:
            key = (event.pid, event.tid) if type(event.tid) is int else (event.pid, str(event.tid))
            try:
                number = known.get(key)
            except TypeError:
                key, number = (str(event.pid), str(event.tid)), None
            if number is None:
                identity = number_of(event.pid), number_of(event.tid)
                number = known[key] = self.threads.setdefault(identity, len(self.threads))
            out.append(number)
        return np.array(out, np.int32)

    def _code(self, events: Iterable[Event]) -> Ints:
        code = self.strings.code
        return np.array([code(event.name) for event in events], np.int32)

    def _operators(self, events: list[Event], kind: int) -> None:
        events, start, end = self._timed(events)
        told: list[OperatorArgs] = arguments(DECODERS[OperatorArgs], events, OperatorArgs())
        known, signature, stack = self.signatures, [], []
        for event, args in zip(events, told):
            key = (
                event.name,
                bytes(args.shapes),
                bytes(args.types),
                bytes(args.strides),
                bytes(args.concrete),
            )
            number = known.get(key)
            if number is None:
                number = known[key] = len(known)
            signature.append(number)
            text = args.stack
            stack.append(
                self.call_stacks.setdefault(text, len(self.call_stacks))
                if text and isinstance(text, str)
                else -1
            )
        thread = self._thread(events)
        self.operators.add(
            thread=thread, start=start, end=end, name=self._code(events), signature=np.array(signature, np.int32),
            stack=np.array(stack, np.int32), seq=integers([a.seq_nr for a in told]),
            forward=integers([a.forward for a in told]), external=integers([a.external for a in told]),
            order=integers([a.external if a.index is None else a.index for a in told]),
        )  # fmt: skip
        self._communications(events, told, thread, start, end)

    def _annotations(self, events: list[Event], kind: int) -> None:
        events, start, end = self._timed(events)
        told: list[OperatorArgs] = arguments(DECODERS[OperatorArgs], events, OperatorArgs())
        thread = self._thread(events)
        self.annotations.add(thread=thread, start=start, end=end, name=self._code(events))
        self._communications(events, told, thread, start, end)

    def _communications(
        self, events: list[Event], told: Sequence[OperatorArgs], thread: Ints, start: Ints, end: Ints
    ) -> None:
        for place, (event, args) in enumerate(zip(events, told)):
            if args.collective is not None or event.name.startswith(("nccl:", "rccl:", "xccl:", "gloo:")):
                self.told.append(
                    (-1, int(thread[place]), int(start[place]), int(end[place]), event.name, args)
                )

    def _launches(self, events: list[Event], kind: int) -> None:
        events, start, end = self._timed(events)
        code = self.strings.code
        told: list[LaunchArgs] = arguments(DECODERS[LaunchArgs], events, LaunchArgs())
        self.launches.add(
            thread=self._thread(events), start=start, end=end, name=self._code(events),
            correlation=integers([a.correlation for a in told]), node=integers([a.node for a in told]),
            kernel=np.array([-1 if a.kernel is None else code(a.kernel) for a in told], np.int32),
        )  # fmt: skip

    def _functions(self, events: list[Event], kind: int) -> None:
        events, start, end = self._timed(events)
        self.functions.add(thread=self._thread(events), start=start, end=end, name=self._code(events))

    def _allocations(self, events: list[Event], kind: int) -> None:
        time = nanoseconds([e.ts for e in events])
        told: list[AllocationArgs] = arguments(DECODERS[AllocationArgs], events, AllocationArgs())
        size = integers([a.bytes for a in told])
        good = time.mask() & size.mask()
        self._lose(TIMELESS, int((~good).sum()))
        keep = np.flatnonzero(good)
        device, on_cpu = integers([a.device for a in told]), np.array([a.kind == 0 for a in told])
        columns = {
            "device": Column(device.values, device.mask() & ~on_cpu), "address": integers([a.address for a in told]),
            "allocated": integers([a.allocated for a in told]), "reserved": integers([a.reserved for a in told]),
        }  # fmt: skip
        self.allocations.add(
            thread=self._thread(events)[keep], time=time.values[keep], bytes=size.values[keep],
            **{name: column.take(keep) for name, column in columns.items()},
        )  # fmt: skip

    def _flows(self, events: list[Event], kind: int) -> None:
        time, number = nanoseconds([e.ts for e in events]), integers([e.id for e in events])
        keep = np.flatnonzero(time.mask() & number.mask())
        begins = np.array([event.ph == "s" for event in events])
        self.flows.add(
            thread=self._thread(events)[keep],
            time=time.values[keep],
            number=number.values[keep],
            begins=begins[keep],
        )

    def _devices(self, events: list[Event], kind: int) -> None:
        events, start, end = self._timed(events)
        told: list[DeviceArgs] = arguments(DECODERS[DeviceArgs], events, DeviceArgs())
        get: Callable[[str], Column] = lambda name: integers([getattr(args, name) for args in told])  # noqa: E731
        device, stream = get("device"), get("stream")
        pid, tid = integers([e.pid for e in events]), integers([number_of(e.tid) for e in events])
        external = integers([a.external_2021 if a.external is None else a.external for a in told])
        self.devices.add(
            kind=np.full(len(events), _DEVICE_KINDS[kind], np.int8), start=start, end=end, name=self._code(events),
            device=either(device, pid), stream=either(stream, tid), context=get("context"), bytes=get("bytes"),
            correlation=get("correlation"), registers=get("registers"), shared_memory=get("shared_memory"),
            occupancy=get("occupancy"), node=get("node"), external=external,
            grid=triples([a.grid for a in told], self._triples), block=triples([a.block for a in told], self._triples),
        )  # fmt: skip
        for place, (event, args) in enumerate(zip(events, told)):
            if args.collective is not None:
                self.told.append((self.n_devices + place, 0, 0, 0, event.name, args))
        self.n_devices += len(events)

    def _metadata(self, event: Event) -> None:
        args: MetadataArgs = arguments(DECODERS[MetadataArgs], [event], MetadataArgs())[0]
        if event.name == "process_name" and isinstance(args.name, str):
            self.process_names[number_of(event.pid)] = args.name
