# SPDX-License-Identifier: Apache-2.0
"""Events sorted by kind, as columns.

An event on a device has the device's number as its process and the stream as its thread; every other event has the
process and the thread that it ran on.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from pyprof.core import intervals
from pyprof.core.marker import is_backward, is_qualified
from pyprof.core.model import KERNEL, MEMCPY, MEMSET, Column, Ints, Strings
from pyprof.parse.tracejson import categories, mtia
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
from pyprof.parse.tracejson.numeric import counts, either, integers, number_of, triples
from pyprof.parse.tracejson.times import nanoseconds

_METADATA, _INSTANT, _BY_PROCESS = -1, -2, -3
_DEVICE_KINDS = {DEVICE_KERNEL: KERNEL, DEVICE_COPY: MEMCPY, DEVICE_SET: MEMSET}
_LAST = np.iinfo(np.int64).max
TIMELESS = "events without a time or a length"
_ARROWS = "kernels of which the file has only the arrows from their operators, and no times"
_OPEN = "operators, ranges and calls that had not ended (taken to last to the end of the file, kept)"


class Parts:
    """Columns in pieces, in the order of their positions in the file."""

    def __init__(self) -> None:
        self._pieces: dict[str, list[Any]] = defaultdict(list)
        self._places: list[int] = []

    def add(self, place: int, **columns: Any) -> None:
        self._places.append(place)
        for name, column in columns.items():
            self._pieces[name].append(column)

    def join(self, other: Parts) -> None:
        """Merge the pieces of another object into these."""
        self._places += other._places
        order = sorted(range(len(self._places)), key=self._places.__getitem__)
        self._places.sort()
        for name in {**self._pieces, **other._pieces}:
            pieces = self._pieces[name] + other._pieces[name]
            self._pieces[name] = [pieces[i] for i in order]

    def values(self, name: str, dtype: Any = np.int64) -> Any:
        """Return a column without gaps."""
        pieces = self._pieces.get(name)
        if not pieces:
            return np.empty(0, dtype)
        joined = pieces[0] if len(pieces) == 1 else np.concatenate(pieces)
        return joined if dtype is None else joined.astype(dtype, copy=False)

    def sort(self, *names: str) -> Ints:
        """Sort all columns by some of them, with missing numbers last. Return the order."""
        for name, pieces in self._pieces.items():
            self._pieces[name] = [self.column(name) if isinstance(pieces[0], Column) else self.values(name, None)]
        keys = [self._pieces[name][0] if name in self._pieces else None for name in names]
        plain = [np.where(k.mask(), k.values, _LAST) if isinstance(k, Column) else k for k in keys if k is not None]
        order = intervals.order_by(*plain) if plain else np.empty(0, np.int64)
        if (order[1:] < order[:-1]).any():
            for pieces in self._pieces.values():
                pieces[0] = pieces[0].take(order)
        return order

    def renumber(self, name: str, place: Ints) -> None:
        """Replace each number of a column by the entry at that index of `place`."""
        if name in self._pieces:
            self._pieces[name] = [place[piece].astype(piece.dtype, copy=False) for piece in self._pieces[name]]

    def replace(self, name: str, old: int, new: int) -> int:
        """Replace a value of a column, and return how often it was there."""
        count = 0
        for piece in self._pieces.get(name, ()):
            there = piece == old
            count += int(np.count_nonzero(there))
            piece[there] = new
        return count

    def column(self, name: str, shape: tuple[int, ...] = ()) -> Column:
        """Return a column of which some values may be missing."""
        pieces: list[Column] = self._pieces.get(name, [])
        if not pieces:
            return Column(np.empty((0, *shape), np.int64))
        values = np.concatenate([piece.values for piece in pieces])
        if all(piece.present is None for piece in pieces):
            return Column(values)
        return Column(values, np.concatenate([piece.mask() for piece in pieces]))


class Collector:
    """Collects events as columns. Names and texts are codes in `strings`, threads numbers in `threads`."""

    def __init__(self, lost: dict[str, int]):
        self.lost = lost
        self.strings = Strings()
        self.threads: dict[tuple[int, int], int] = {}
        self.signatures: dict[tuple[Key, int | None], int] = {}  # with the recorded FLOPs
        self.call_stacks: dict[str, int] = {}
        self.process_names: list[tuple[int, int, str]] = []  # position in the file, process, name
        self.operators, self.annotations, self.launches, self.functions = Parts(), Parts(), Parts(), Parts()
        self.allocations, self.flows, self.devices = Parts(), Parts(), Parts()
        # Collectives: thread, start and end of a host event (0 for a device event, whose column `communication` has the
        # index in this list), name, position in the file, and arguments.
        self.communications: list[tuple[int, int, int, str, int, OperatorArgs | DeviceArgs]] = []
        # The same, sorted, with the device event first (-1: none); set once all events are collected.
        self.collectives: list[tuple[int, int, int, int, str, int, OperatorArgs | DeviceArgs]] = []
        self.without_category: list[Event] = []  # until the names of all processes are known
        self.losses: list[tuple[int, dict[str, int]]] = []  # position in the file, losses there
        self.count = 0  # all events, including those that could not be read
        self._place = 0
        self._kinds: dict[tuple[str, str | None], Any] = {}
        self._names: dict[Any, int] = {}
        self._triples: dict[bytes, Any] = {}

    def add(self, events: list[Event], place: int = 0) -> None:
        """Add events from one position in the file."""
        self._place = place
        sorted_: dict[Any, list[Event]] = defaultdict(list)
        take = {key: sorted_[kind].append for key, kind in self._kinds.items()}
        for event in events:
            try:
                take[event.ph, event.cat](event)
            except KeyError:
                kind = self._kinds[event.ph, event.cat] = _kind(event.ph, event.cat)
                take[event.ph, event.cat] = sorted_[kind].append
                sorted_[kind].append(event)
        for kind, group in sorted_.items():
            if isinstance(kind, str):
                self._lose(kind, len(group))
        self.without_category += sorted_[_BY_PROCESS]
        if sorted_[_METADATA]:
            self._metadata(sorted_[_METADATA])
        sorted_[ALLOCATION] += [event for event in sorted_[_INSTANT] if event.name == "[memory]"]
        if sorted_[EITHER]:
            self._split(sorted_)
        for kind, collect in (
            (OPERATOR, self._operators), (ANNOTATION, self._annotations), (LAUNCH, self._launches),
            (PYTHON, self._functions), (ALLOCATION, self._allocations), (FLOW, self._flows),
            (DEVICE_KERNEL, self._devices), (DEVICE_COPY, self._devices), (DEVICE_SET, self._devices),
        ):  # fmt: skip
            if sorted_[kind]:
                collect(sorted_[kind], kind)

    def __getstate__(self) -> dict[str, Any]:
        """Return the state without caches."""
        return {**self.__dict__, "_kinds": {}, "_names": {}, "_triples": {}}

    def join(self, other: Collector) -> None:
        """Add the events that another collector has of the same file. Empties it."""
        name = np.array([self.strings.code(text) for text in other.strings.texts], np.int32)
        thread = _merge_numbers(self.threads, other.threads)
        other.launches.renumber("kernel", np.r_[name, np.int32(-1)])  # -1 stays: none
        other.operators.renumber("signature", _merge_numbers(self.signatures, other.signatures))
        other.operators.renumber("stack", np.r_[_merge_numbers(self.call_stacks, other.call_stacks), np.int32(-1)])
        first = len(self.communications)
        other.devices.renumber(
            "communication", np.r_[np.arange(first, first + len(other.communications)), -1].astype(np.int32)
        )
        self.communications += [
            (int(thread[entry[0]]) if thread.size else 0, *entry[1:]) for entry in other.communications
        ]
        self.process_names += other.process_names
        for parts in (other.operators, other.annotations, other.launches, other.functions, other.devices):
            parts.renumber("name", name)
        for parts in (
            other.operators, other.annotations, other.launches, other.functions, other.allocations, other.flows,
        ):  # fmt: skip
            parts.renumber("thread", thread)
        for own, theirs in (
            (self.operators, other.operators), (self.annotations, other.annotations), (self.launches, other.launches),
            (self.functions, other.functions), (self.allocations, other.allocations), (self.flows, other.flows),
            (self.devices, other.devices),
        ):  # fmt: skip
            own.join(theirs)
        self.without_category += other.without_category
        self.count += other.count
        self.losses += other.losses

    def _lose(self, reason: str, number: int) -> None:
        if number:
            self.lost[reason] = self.lost.get(reason, 0) + number

    @staticmethod
    def _split(sorted_: dict[Any, list[Event]]) -> None:
        """Split the category that traces of 2021 use for both operators and ranges of the user: by name, or by
        inputs."""
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

    def close(self) -> None:
        """Add the events whose process decides their kind. Let events of the host that had not ended last to the end of
        the file, and count them."""
        if self.without_category:
            names = {pid: name for _, pid, name in self.process_names}
            by_number = {
                event.pid: names[number] for event in self.without_category if (number := number_of(event.pid)) in names
            }
            self._kinds = {("X", None): _no_category(None)}
            self._lose(_ARROWS, categories.without_kernels(self.without_category))
            self.add(categories.named(self.without_category, names | by_number))
            self.without_category = []
        host = self.operators, self.annotations, self.launches, self.functions
        last = max(
            int(parts.values(name).max(initial=0)) for parts in (*host, self.devices) for name in ("start", "end")
        )
        self.communications = [(*one[:2], last, *one[3:]) if one[2] == -_LAST else one for one in self.communications]
        for parts in host:
            self._lose(_OPEN, parts.replace("end", -_LAST, last))

    def _timed(self, events: list[Event], host: bool = True) -> tuple[list[Event], Ints, Ints]:
        """Return events with their starts and ends; those without are dropped and counted. A length of -1 is that of an
        event of the host that had not ended: its end is set by `close`."""
        start, length = nanoseconds([e.ts for e in events]), nanoseconds([e.dur for e in events])
        unfinished = np.isin(length.values, (-1, -1000)) & host  # of ns, or of us
        valid = start.mask() & length.mask() & ((length.values >= 0) | unfinished)
        if not valid.all():
            self._lose(TIMELESS, int((~valid).sum()))
            events = [event for event, ok in zip(events, valid.tolist()) if ok]
            start, length = start.take(np.flatnonzero(valid)), length.take(np.flatnonzero(valid))
            unfinished = unfinished[valid]
        return events, start.values, np.where(unfinished, -_LAST, start.values + length.values)

    def _thread(self, events: Sequence[Event]) -> Ints:
        pids: list[Any] = [event.pid for event in events]
        tids: list[Any] = [event.tid for event in events]
        if not {*map(type, pids), *map(type, tids)} <= {int, str}:
            # 1, 1.0 and true are the same dictionary key, but three processes.
            pids, tids = ([value if type(value) is int else str(value) for value in side] for side in (pids, tids))
        try:
            return np.array([*map(self._names.__getitem__, zip(pids, tids))], np.int32)
        except KeyError:
            for pid, tid in zip(pids, tids):
                identity = number_of(pid), number_of(tid)
                self._names[pid, tid] = self.threads.setdefault(identity, len(self.threads))
            return np.array([*map(self._names.__getitem__, zip(pids, tids))], np.int32)

    def _code(self, events: Iterable[Event]) -> Ints:
        return self.strings.codes([event.name for event in events])

    def _operators(self, events: list[Event], kind: int) -> None:
        events, start, end = self._timed(events)
        decoded: list[OperatorArgs] = arguments(DECODERS[OperatorArgs], events, OperatorArgs())
        signatures, call_stacks = self.signatures, self.call_stacks
        keys = zip(
            [event.name for event in events],
            map(bytes, [args.shapes for args in decoded]),
            map(bytes, [args.types for args in decoded]),
            map(bytes, [args.strides for args in decoded]),
            map(bytes, [args.concrete for args in decoded]),
        )
        flops = counts([args.flops for args in decoded])
        signature = [signatures.setdefault(key, len(signatures)) for key in zip(keys, flops)]
        stack = [
            call_stacks.setdefault(args.stack, len(call_stacks)) if args.stack and isinstance(args.stack, str) else -1
            for args in decoded
        ]
        thread = self._thread(events)
        self.operators.add(
            self._place, thread=thread, start=start, end=end, name=self._code(events),
            signature=np.array(signature, np.int32),
            stack=np.array(stack, np.int32), seq=integers([a.seq_nr for a in decoded]),
            forward=integers([a.forward for a in decoded]), external=integers([a.external for a in decoded]),
            order=integers([a.external if a.index is None else a.index for a in decoded]),
        )  # fmt: skip
        self._communications(events, decoded, thread, start, end)

    def _annotations(self, events: list[Event], kind: int) -> None:
        events, start, end = self._timed(events)
        decoded: list[OperatorArgs] = arguments(DECODERS[OperatorArgs], events, OperatorArgs())
        thread = self._thread(events)
        self.annotations.add(self._place, thread=thread, start=start, end=end, name=self._code(events))
        self._communications(events, decoded, thread, start, end)

    def _communications(
        self, events: list[Event], decoded: Sequence[OperatorArgs], thread: Ints, start: Ints, end: Ints
    ) -> None:
        names = [event.name for event in events]
        ranges = {name for name in {*names} if name.startswith(("nccl:", "rccl:", "xccl:", "gloo:"))}
        for row, (name, args) in enumerate(zip(names, decoded)):
            if args.collective is not None or name in ranges:
                self.communications.append((int(thread[row]), int(start[row]), int(end[row]), name, self._place, args))

    def _launches(self, events: list[Event], kind: int) -> None:
        events, start, end = self._timed(events)
        code = self.strings.code
        decoded: list[LaunchArgs] = arguments(DECODERS[LaunchArgs], events, LaunchArgs())
        self.launches.add(
            self._place, thread=self._thread(events), start=start, end=end, name=self._code(events),
            correlation=integers([a.correlation for a in decoded]), node=integers([a.node for a in decoded]),
            external=integers([a.external for a in decoded]),
            kernel=np.array([-1 if a.kernel is None else code(a.kernel) for a in decoded], np.int32),
        )  # fmt: skip

    def _functions(self, events: list[Event], kind: int) -> None:
        events, start, end = self._timed(events)
        self.functions.add(self._place, thread=self._thread(events), start=start, end=end, name=self._code(events))

    def _allocations(self, events: list[Event], kind: int) -> None:
        time = nanoseconds([e.ts for e in events])
        decoded: list[AllocationArgs] = arguments(DECODERS[AllocationArgs], events, AllocationArgs())
        size = integers([a.bytes for a in decoded])
        valid = time.mask() & size.mask()
        self._lose(TIMELESS, int((~valid).sum()))
        keep = np.flatnonzero(valid)
        device, on_cpu = integers([a.device for a in decoded]), np.array([a.kind == 0 for a in decoded])
        columns = {
            "device": Column(device.values, device.mask() & ~on_cpu),
            "address": integers([a.address for a in decoded]),
            "allocated": integers([a.allocated for a in decoded]),
            "reserved": integers([a.reserved for a in decoded]),
        }
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
        events, start, end = self._timed(events, host=False)
        decoded: list[DeviceArgs] = arguments(DECODERS[DeviceArgs], events, DeviceArgs())
        device, stream = integers([a.device for a in decoded]), integers([a.stream for a in decoded])
        pid, tid = integers([e.pid for e in events]), integers([number_of(e.tid) for e in events])
        external = integers([a.external_2021 if a.external is None else a.external for a in decoded])
        kinds, name, size = (
            np.full(len(events), _DEVICE_KINDS[kind], np.int8),
            self._code(events),
            integers([a.bytes for a in decoded]),
        )
        if requests := mtia.copies(events, decoded) if kind == DEVICE_KERNEL else {}:
            kinds[[*requests]], name[[*requests]] = MEMCPY, self.strings.codes([*requests.values()])
            size = either(size, integers([args.length if i in requests else None for i, args in enumerate(decoded)]))
        communication = np.full(len(events), -1, np.int32)
        for place, (event, args) in enumerate(zip(events, decoded)):
            if args.collective is not None:
                communication[place] = len(self.communications)
                self.communications.append((0, 0, 0, event.name, self._place, args))
        self.devices.add(
            self._place, kind=kinds, start=start, end=end, name=name, device=either(device, pid),
            stream=either(stream, tid), context=integers([a.context for a in decoded]), bytes=size, external=external,
            correlation=integers([a.correlation for a in decoded]),
            registers=integers([a.registers for a in decoded]),
            shared_memory=integers([a.shared_memory for a in decoded]),
            occupancy=integers([a.occupancy for a in decoded]), node=integers([a.node for a in decoded]),
            grid=triples([a.grid for a in decoded], self._triples),
            block=triples([a.block for a in decoded], self._triples),
            communication=communication,
        )  # fmt: skip

    def _metadata(self, events: list[Event]) -> None:
        decoded: list[MetadataArgs] = arguments(DECODERS[MetadataArgs], events, MetadataArgs())
        for event, args in zip(events, decoded):
            if event.name == "process_name" and isinstance(args.name, str):
                self.process_names.append((self._place, number_of(event.pid), args.name))


def _kind(phase: str, category: str | None) -> Any:
    """Return the kind of events with a phase and a category; a sentence for an unknown category."""
    if phase == "X":
        kind = _BY_PROCESS if category is None else of_category(category)
        return _no_category(category) if kind is None else kind
    if phase in ("s", "f"):
        if (category or "").startswith(categories.ARROWS):
            return _BY_PROCESS
        return FLOW if of_category(category) == FLOW else IGNORED
    return {"i": _INSTANT, "I": _INSTANT, "M": _METADATA}.get(phase, IGNORED)


def _no_category(category: str | None) -> str:
    return f"events of an unknown category, {str(category)[:80]!r}"


def _merge_numbers(numbers: dict[Any, int], other: dict[Any, int]) -> Ints:
    """Add the keys of another numbering after one's own. Return the new number of each of its keys."""
    return np.array([numbers.setdefault(key, len(numbers)) for key in other], np.int32)
