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
from pyprof.parse.tracejson import mtia
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

_METADATA, _INSTANT = -1, -2
_DEVICE_KINDS = {DEVICE_KERNEL: KERNEL, DEVICE_COPY: MEMCPY, DEVICE_SET: MEMSET}
_LAST = np.iinfo(np.int64).max
TIMELESS = "events without a time or a length"


class Parts:
    """Columns in pieces, in the order of their places in the file."""

    def __init__(self) -> None:
        self._pieces: dict[str, list[Any]] = defaultdict(list)
        self._places: list[int] = []

    def add(self, place: int, **columns: Any) -> None:
        self._places.append(place)
        for name, column in columns.items():
            self._pieces[name].append(column)

    def join(self, other: Parts) -> None:
        """Put another's pieces among these."""
        self._places += other._places
        order = sorted(range(len(self._places)), key=self._places.__getitem__)
        self._places.sort()
        for name in {**self._pieces, **other._pieces}:
            pieces = self._pieces[name] + other._pieces[name]
            self._pieces[name] = [pieces[i] for i in order]

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
            self._pieces[name] = [
                place[piece].astype(piece.dtype, copy=False) for piece in self._pieces[name]
            ]

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
        self.process_names: list[tuple[int, int, str]] = []  # place in the file, process, name
        self.operators, self.annotations, self.launches, self.functions = Parts(), Parts(), Parts(), Parts()
        self.allocations, self.flows, self.devices = Parts(), Parts(), Parts()
        # Of collectives: thread, start and end of a host event (0 of a device event, whose column `told` has the
        # number in this list), name, place in the file, and what is said.
        self.told: list[tuple[int, int, int, str, int, OperatorArgs | DeviceArgs]] = []
        # The same in order, with the device event before it (-1: none), once all are there.
        self.collectives: list[tuple[int, int, int, int, str, int, OperatorArgs | DeviceArgs]] = []
        self.losses: list[tuple[int, dict[str, int]]] = []  # place in the file, and what was lost there
        self.count = 0  # of all events, those that could not be read too
        self._place = 0
        self._kinds: dict[tuple[str, str | None], Any] = {}
        self._names: dict[Any, int] = {}
        self._triples: dict[bytes, Any] = {}

    def add(self, events: list[Event], place: int = 0) -> None:
        """Some more events, of a place in the file."""
        self._place = place
        sorted_: dict[Any, list[Event]] = defaultdict(list)
        take = {key: sorted_[kind].append for key, kind in self._kinds.items()}
        for event in events:
            key = event.ph, event.cat
            if key not in take:
                kind = self._kinds[key] = _kind(*key)
                take[key] = sorted_[kind].append
            take[key](event)
        for kind, some in sorted_.items():
            if isinstance(kind, str):
                self._lose(kind, len(some))
        if sorted_[_METADATA]:
            self._metadata(sorted_[_METADATA])
        sorted_[ALLOCATION] += [event for event in sorted_[_INSTANT] if event.name == "[memory]"]
        if sorted_[EITHER]:
            self._split(sorted_)
        for kind, keep in (
            (OPERATOR, self._operators), (ANNOTATION, self._annotations), (LAUNCH, self._launches),
            (PYTHON, self._functions), (ALLOCATION, self._allocations), (FLOW, self._flows),
            (DEVICE_KERNEL, self._devices), (DEVICE_COPY, self._devices), (DEVICE_SET, self._devices),
        ):  # fmt: skip
            if sorted_[kind]:
                keep(sorted_[kind], kind)

    def __getstate__(self) -> dict[str, Any]:
        """Without what was remembered only to be fast."""
        return {**self.__dict__, "_kinds": {}, "_names": {}, "_triples": {}}

    def join(self, other: Collector) -> None:
        """Add what another collected of the same file. Empties it."""
        name = np.array([self.strings.code(text) for text in other.strings.texts], np.int32)
        thread = _joined(self.threads, other.threads)
        other.launches.renumber("kernel", np.r_[name, np.int32(-1)])  # -1 stays: none
        other.operators.renumber("signature", _joined(self.signatures, other.signatures))
        other.operators.renumber("stack", np.r_[_joined(self.call_stacks, other.call_stacks), np.int32(-1)])
        first = len(self.told)
        other.devices.renumber("told", np.r_[np.arange(first, first + len(other.told)), -1].astype(np.int32))
        self.told += [(int(thread[told[0]]) if thread.size else 0, *told[1:]) for told in other.told]
        self.process_names += other.process_names
        for parts in (other.operators, other.annotations, other.launches, other.functions, other.devices):
            parts.renumber("name", name)
        for parts in (
            other.operators, other.annotations, other.launches, other.functions, other.allocations, other.flows,
        ):  # fmt: skip
            parts.renumber("thread", thread)
        for mine, theirs in (
            (self.operators, other.operators), (self.annotations, other.annotations), (self.launches, other.launches),
            (self.functions, other.functions), (self.allocations, other.allocations), (self.flows, other.flows),
            (self.devices, other.devices),
        ):  # fmt: skip
            mine.join(theirs)
        self.count += other.count
        self.losses += other.losses

    def _lose(self, reason: str, number: int) -> None:
        if number:
            self.lost[reason] = self.lost.get(reason, 0) + number

    @staticmethod
    def _split(sorted_: dict[Any, list[Event]]) -> None:
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
            pid, tid = event.pid, event.tid
            # 1, 1.0 and true are one key of a dictionary, and three processes.
            key = pid if type(pid) is int else str(pid), tid if type(tid) is int else str(tid)
            number = known.get(key)
            if number is None:
                identity = number_of(pid), number_of(tid)
                number = known[key] = self.threads.setdefault(identity, len(self.threads))
            out.append(number)
        return np.array(out, np.int32)

    def _code(self, events: Iterable[Event]) -> Ints:
        return self.strings.codes([event.name for event in events])

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
            self._place, thread=thread, start=start, end=end, name=self._code(events),
            signature=np.array(signature, np.int32),
            stack=np.array(stack, np.int32), seq=integers([a.seq_nr for a in told]),
            forward=integers([a.forward for a in told]), external=integers([a.external for a in told]),
            order=integers([a.external if a.index is None else a.index for a in told]),
        )  # fmt: skip
        self._communications(events, told, thread, start, end)

    def _annotations(self, events: list[Event], kind: int) -> None:
        events, start, end = self._timed(events)
        told: list[OperatorArgs] = arguments(DECODERS[OperatorArgs], events, OperatorArgs())
        thread = self._thread(events)
        self.annotations.add(self._place, thread=thread, start=start, end=end, name=self._code(events))
        self._communications(events, told, thread, start, end)

    def _communications(
        self, events: list[Event], told: Sequence[OperatorArgs], thread: Ints, start: Ints, end: Ints
    ) -> None:
        for place, (event, args) in enumerate(zip(events, told)):
            if args.collective is not None or event.name.startswith(("nccl:", "rccl:", "xccl:", "gloo:")):
                self.told.append(
                    (int(thread[place]), int(start[place]), int(end[place]), event.name, self._place, args)
                )

    def _launches(self, events: list[Event], kind: int) -> None:
        events, start, end = self._timed(events)
        code = self.strings.code
        told: list[LaunchArgs] = arguments(DECODERS[LaunchArgs], events, LaunchArgs())
        self.launches.add(
            self._place, thread=self._thread(events), start=start, end=end, name=self._code(events),
            correlation=integers([a.correlation for a in told]), node=integers([a.node for a in told]),
            kernel=np.array([-1 if a.kernel is None else code(a.kernel) for a in told], np.int32),
        )  # fmt: skip

    def _functions(self, events: list[Event], kind: int) -> None:
        events, start, end = self._timed(events)
        self.functions.add(
            self._place, thread=self._thread(events), start=start, end=end, name=self._code(events)
        )

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
            self._place, thread=self._thread(events)[keep], time=time.values[keep], bytes=size.values[keep],
            **{name: column.take(keep) for name, column in columns.items()},
        )  # fmt: skip

    def _flows(self, events: list[Event], kind: int) -> None:
        time, number = nanoseconds([e.ts for e in events]), integers([e.id for e in events])
        keep = np.flatnonzero(time.mask() & number.mask())
        begins = np.array([event.ph == "s" for event in events])
        self.flows.add(
            self._place,
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
        what, name, size = (
            np.full(len(events), _DEVICE_KINDS[kind], np.int8),
            self._code(events),
            get("bytes"),
        )
        if requests := mtia.copies(events, told) if kind == DEVICE_KERNEL else {}:
            what[[*requests]], name[[*requests]] = MEMCPY, self.strings.codes([*requests.values()])
            size = either(
                size, integers([args.length if i in requests else None for i, args in enumerate(told)])
            )
        told_of = np.full(len(events), -1, np.int32)
        for place, (event, args) in enumerate(zip(events, told)):
            if args.collective is not None:
                told_of[place] = len(self.told)
                self.told.append((0, 0, 0, event.name, self._place, args))
        self.devices.add(
            self._place, kind=what, start=start, end=end, name=name, device=either(device, pid),
            stream=either(stream, tid), context=get("context"),
            bytes=size, correlation=get("correlation"), registers=get("registers"),
            shared_memory=get("shared_memory"), occupancy=get("occupancy"), node=get("node"), external=external,
            grid=triples([a.grid for a in told], self._triples), block=triples([a.block for a in told], self._triples),
            told=told_of,
        )  # fmt: skip

    def _metadata(self, events: list[Event]) -> None:
        told: list[MetadataArgs] = arguments(DECODERS[MetadataArgs], events, MetadataArgs())
        for event, args in zip(events, told):
            if event.name == "process_name" and isinstance(args.name, str):
                self.process_names.append((self._place, number_of(event.pid), args.name))


def _kind(phase: str, category: str | None) -> Any:
    """What events of a phase and a category are; a sentence for a category that is not known."""
    if phase == "X":
        kind = of_category(category)
        return f"events of a category that is not known, {str(category)[:80]!r}" if kind is None else kind
    if phase in ("s", "f"):
        return FLOW if of_category(category) == FLOW else IGNORED
    return {"i": _INSTANT, "I": _INSTANT, "M": _METADATA}.get(phase, IGNORED)


def _joined(numbers: dict[Any, int], more: dict[Any, int]) -> Ints:
    """Number what another dictionary numbers, after one's own; returns the new number of each old one."""
    return np.array([numbers.setdefault(key, len(numbers)) for key in more], np.int32)
