# SPDX-License-Identifier: Apache-2.0
"""Events sorted by what they are, as columns.

A category has had several spellings since 2021, and vendors have their own; they are compared in lower case. What runs
on a device carries the device's number as its process and the stream as its thread; everything else, those of a thread.
Source: libkineto, output_json.cpp and ActivityType.cpp; notes on each field stand where it is read.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import msgspec
import numpy as np

from pyprof import intervals
from pyprof.marker import is_backward, is_qualified
from pyprof.model import KERNEL, MEMCPY, MEMSET, Column, Ints, Strings
from pyprof.parse.tracejson.arguments import Key
from pyprof.parse.tracejson.events import FAULTS, Event, arguments
from pyprof.parse.tracejson.times import nanoseconds

(
    OPERATOR, EITHER, ANNOTATION, LAUNCH, PYTHON, ALLOCATION, FLOW, DEVICE_KERNEL, DEVICE_COPY, DEVICE_SET, IGNORED,
) = range(11)  # fmt: skip
_KINDS = {
    "cpu_op": OPERATOR, "operator": EITHER, "user_annotation": ANNOTATION, "python_function": PYTHON,
    "kernel": DEVICE_KERNEL, "concurrent_kernel": DEVICE_KERNEL, "mtia_ccp_events": DEVICE_KERNEL,
    "hpu_op": DEVICE_KERNEL, "gpu_memcpy": DEVICE_COPY, "memcpy": DEVICE_COPY, "gpu_memset": DEVICE_SET,
    "memset": DEVICE_SET, "cpu_instant_event": ALLOCATION,
    "cuda_runtime": LAUNCH, "runtime": LAUNCH, "cuda_driver": LAUNCH, "hip_runtime": LAUNCH, "hip_driver": LAUNCH,
    "xpu_runtime": LAUNCH, "xpu_driver": LAUNCH, "mtia_runtime": LAUNCH, "glow_runtime": LAUNCH,
    "privateuse1_runtime": LAUNCH, "privateuse1_driver": LAUNCH,
    "fwdbwd": FLOW, "forward_backward": FLOW,
    # Copies of what is known (annotations as the device saw them), or nothing that runs.
    "gpu_user_annotation": IGNORED, "overhead": IGNORED, "trace": IGNORED, "cuda_sync": IGNORED, "cuda_event": IGNORED,
    "cuda_profiler_range": IGNORED, "ac2g": IGNORED, "async": IGNORED, "async_cpu_to_gpu": IGNORED,
    "async_gpu": IGNORED, "collective_comm": IGNORED, "external_correlation": IGNORED, "hardware_counters": IGNORED,
    "mtia_insight": IGNORED, "mtia_counters": IGNORED, "xpu_scope_profiler": IGNORED, "xpu_sync": IGNORED,
}  # fmt: skip
_DEVICE_KINDS = {DEVICE_KERNEL: KERNEL, DEVICE_COPY: MEMCPY, DEVICE_SET: MEMSET}
_RAW = msgspec.Raw(b"")
_LAST = np.iinfo(np.int64).max
TIMELESS = "events without a time or a length"


def _field(name: str, default: Any = None) -> Any:
    return msgspec.field(default=default, name=name)


class _Communication(msgspec.Struct, gc=False):
    """What an event says of a collective. Sizes are numbers of elements, of this rank."""

    collective: Any = _field("Collective name")
    dtype: Any = None
    sent: Any = _field("In msg nelems")
    received: Any = _field("Out msg nelems")
    size: Any = _field("Group size")
    group: Any = _field("Process Group Name")
    description: Any = _field("Process Group Description")
    seq: Any = _field("Seq")


class OperatorArgs(_Communication, gc=False):
    external: Any = _field("External id")
    index: Any = _field("Ev Idx")
    seq_nr: Any = _field("Sequence number")
    forward: Any = _field("Fwd thread id")
    shapes: msgspec.Raw = _field("Input Dims", _RAW)
    types: msgspec.Raw = _field("Input type", _RAW)
    strides: msgspec.Raw = _field("Input Strides", _RAW)
    concrete: msgspec.Raw = _field("Concrete Inputs", _RAW)
    stack: Any = _field("Call stack")


class DeviceArgs(_Communication, gc=False):
    device: Any = None
    context: Any = None
    stream: Any = None
    correlation: Any = None
    external: Any = _field("External id")
    external_2021: Any = _field("external id")
    registers: Any = _field("registers per thread")
    shared_memory: Any = _field("shared memory")
    occupancy: Any = _field("est. achieved occupancy %")
    node: Any = _field("graph node id")
    bytes: Any = None
    grid: msgspec.Raw = _RAW
    block: msgspec.Raw = _RAW


class LaunchArgs(msgspec.Struct, gc=False):
    correlation: Any = None
    kernel: str | None = None
    node: Any = _field("graph node id")


class AllocationArgs(msgspec.Struct, gc=False):
    kind: Any = _field("Device Type")
    device: Any = _field("Device Id")
    address: Any = _field("Addr")
    bytes: Any = _field("Bytes")
    allocated: Any = _field("Total Allocated")
    reserved: Any = _field("Total Reserved")


class MetadataArgs(msgspec.Struct, gc=False):
    name: Any = None
    labels: Any = None


_DECODERS: dict[type, Any] = {
    kind: msgspec.json.Decoder(list[kind])  # type: ignore[valid-type]
    for kind in (OperatorArgs, DeviceArgs, LaunchArgs, AllocationArgs, MetadataArgs)
}


def of_category(text: str | None) -> int | None:
    """What events of a category are, None for one that is not known."""
    return _KINDS.get((text or "").lower())


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
        told: list[OperatorArgs] = arguments(_DECODERS[OperatorArgs], events, OperatorArgs())
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
        told: list[OperatorArgs] = arguments(_DECODERS[OperatorArgs], events, OperatorArgs())
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
        told: list[LaunchArgs] = arguments(_DECODERS[LaunchArgs], events, LaunchArgs())
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
        told: list[AllocationArgs] = arguments(_DECODERS[AllocationArgs], events, AllocationArgs())
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
        told: list[DeviceArgs] = arguments(_DECODERS[DeviceArgs], events, DeviceArgs())
        get: Callable[[str], Column] = lambda name: integers([getattr(args, name) for args in told])  # noqa: E731
        device, stream = get("device"), get("stream")
        pid, tid = integers([e.pid for e in events]), integers([number_of(e.tid) for e in events])
        external = integers([a.external_2021 if a.external is None else a.external for a in told])
        self.devices.add(
            kind=np.full(len(events), _DEVICE_KINDS[kind], np.int8), start=start, end=end, name=self._code(events),
            device=_either(device, pid), stream=_either(stream, tid), context=get("context"), bytes=get("bytes"),
            correlation=get("correlation"), registers=get("registers"), shared_memory=get("shared_memory"),
            occupancy=get("occupancy"), node=get("node"), external=external,
            grid=triples([a.grid for a in told], self._triples), block=triples([a.block for a in told], self._triples),
        )  # fmt: skip
        for place, (event, args) in enumerate(zip(events, told)):
            if args.collective is not None:
                self.told.append((self.n_devices + place, 0, 0, 0, event.name, args))
        self.n_devices += len(events)

    def _metadata(self, event: Event) -> None:
        args: MetadataArgs = arguments(_DECODERS[MetadataArgs], [event], MetadataArgs())[0]
        if event.name == "process_name" and isinstance(args.name, str):
            self.process_names[number_of(event.pid)] = args.name


def number_of(value: Any) -> int:
    """A process, thread or stream as a number: many files have texts ("stream 7", "Spans").

    >>> number_of(7), number_of("25738"), number_of("stream 7"), number_of("Spans") < 0
    (7, 25738, 7, True)
    """
    if type(value) is int and abs(value) < 1 << 62:
        return value
    text = str(value)
    digits = text.rpartition(" ")[2]
    if digits.isascii() and digits.isdigit() and len(digits) < 18:
        return int(digits)
    return -1 - sum(byte << 8 * (place % 6) for place, byte in enumerate(text.encode("utf-8", "replace")))


def integers(values: Sequence[Any]) -> Column:
    """Whole numbers, also those that are written as text or with a fraction; missing where there is none.

    >>> found = integers([7, None, "12", 2.9, [1], "x", 1 << 70])
    >>> found.values.tolist(), found.mask().tolist()
    ([7, 0, 12, 2, 0, 0, 0], [True, False, True, True, False, False, False])
    """
    missing = values.count(None)
    if missing == len(values) and missing:
        return Column.missing(len(values))
    try:
        given = np.array(
            values if not missing else [0 if value is None else value for value in values], np.int64
        )
        if given.ndim == 1:
            return Column(given, np.array([value is not None for value in values]) if missing else None)
    except (TypeError, ValueError, OverflowError):
        pass
    out, present = np.zeros(len(values), np.int64), np.zeros(len(values), bool)
    for place, value in enumerate(values):
        try:
            out[place] = int(value)
            present[place] = True
        except (TypeError, ValueError, OverflowError):
            continue
    return Column(out, present)


_NO_TRIPLE = np.zeros(3, np.int64)


def triples(texts: Sequence[Any], known: dict[bytes, Any]) -> Column:
    """Grids and blocks from their texts; `known` remembers those that were seen."""
    found = []
    for text in texts:
        key = bytes(text)
        if key not in known:
            known[key] = _triple(key)
        found.append(known[key])
    return Column(
        np.array([_NO_TRIPLE if one is None else one for one in found], np.int64).reshape(-1, 3),
        np.array([one is not None for one in found], bool),
    )


def _triple(text: bytes) -> Any:
    try:
        value = msgspec.json.decode(text, type=tuple[int, int, int]) if text else None
    except FAULTS:
        return None
    return value if value and all(0 <= v < 1 << 31 for v in value) else None


def _either(first: Column, second: Column) -> Column:
    has = first.mask()
    return Column(np.where(has, first.values, second.values), has | second.mask())
