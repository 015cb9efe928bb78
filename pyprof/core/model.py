# SPDX-License-Identifier: Apache-2.0
"""Data model shared by all parts of PyProf: calls and their costs, recordings, rows.

Times are integer nanoseconds from `Trace.t0`. FLOPs are counts (a fused multiply-add is 2), bytes are counts.
Unknown is `None` for a scalar and a presence mask for a column, never 0. This module imports nothing of PyProf.

>>> Tensor((64, 1024), "float16").bytes
131072
>>> Cost(480, 246, dgrad=Cost(480, 246)).dgrad
Cost(flops=480, bytes=246)
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, fields
from math import prod
from typing import Any, NamedTuple, Union

import numpy as np
import numpy.typing as npt

Ints = npt.NDArray[np.integer[Any]]
Bools = npt.NDArray[np.bool_]
Floats = npt.NDArray[np.float64]

# Width of one element in bits. Names are torch's without the "torch." prefix.
# Source: torch.dtype documentation, https://docs.pytorch.org/docs/stable/tensor_attributes.html
DTYPE_BITS = {
    "bool": 8,
    "uint1": 1, "uint2": 2, "uint3": 3, "uint4": 4, "uint5": 5, "uint6": 6, "uint7": 7,
    "int1": 1, "int2": 2, "int3": 3, "int4": 4, "int5": 5, "int6": 6, "int7": 7,
    "uint8": 8, "int8": 8, "quint8": 8, "qint8": 8, "quint4x2": 4, "quint2x4": 2, "bits8": 8,
    "uint16": 16, "int16": 16, "short": 16,
    "uint32": 32, "int32": 32, "int": 32, "qint32": 32,
    "uint64": 64, "int64": 64, "long": 64,
    "float4_e2m1fn_x2": 8,  # two values in one byte: the element torch counts is the byte
    "float8_e4m3fn": 8, "float8_e5m2": 8, "float8_e4m3fnuz": 8, "float8_e5m2fnuz": 8, "float8_e8m0fnu": 8,
    "float16": 16, "half": 16, "bfloat16": 16,
    "float32": 32, "float": 32,
    "float64": 64, "double": 64,
    "complex32": 32, "complex64": 64, "complex128": 128,
}  # fmt: skip


class Tensor(NamedTuple):
    """A tensor argument: its shape, torch's dtype name, its strides in elements (None: not recorded; empty, though it
    has dimensions: it is sparse), and whether it shares the memory of an earlier argument of the call."""

    shape: tuple[int, ...]
    dtype: str | None
    stride: tuple[int, ...] | None = None
    again: bool = False

    @property
    def numel(self) -> int:
        return prod(self.shape)

    @property
    def is_sparse(self) -> bool:
        """Flag for one without strides: how many elements it stores is not known."""
        return self.stride == () and bool(self.shape)

    @property
    def bytes(self) -> int | None:
        """Bytes of all elements, None for an unknown dtype and a sparse tensor. An expanded tensor counts its stored
        elements; one that shares the memory of an earlier argument counts 0.

        >>> Tensor((5, 4), "float32", (0, 1)).bytes, Tensor((5, 4), "float32", again=True).bytes
        (16, 0)
        """
        bits = DTYPE_BITS.get(self.dtype or "")
        if bits is None or self.is_sparse:
            return None
        if self.again:
            return 0
        shape = self.shape
        if self.stride is not None and len(self.stride) == len(shape):
            shape = tuple(1 if step == 0 and size > 1 else size for size, step in zip(shape, self.stride))
        return (prod(shape) * bits + 7) // 8

    def __repr__(self) -> str:
        again = ", again=True" if self.again else ""
        return f"Tensor(shape={self.shape!r}, dtype={self.dtype!r}, stride={self.stride!r}{again})"


def tensor(shape: tuple[int, ...], dtype: str | None, stride: Sequence[int] | None) -> Tensor:
    """Return a tensor of the model; strides of a contiguous one are left out. A sparse one has none: ().

    >>> tensor((2, 3), "float32", (3, 1)), tensor((2, 3), "float32", (1, 2)).stride
    (Tensor(shape=(2, 3), dtype='float32', stride=None), (1, 2))
    """
    if stride is not None and not len(stride):
        return Tensor(shape, dtype, () if shape else None)
    if stride is None or len(stride) != len(shape):
        return Tensor(shape, dtype)
    expected = 1
    for size, step in zip(reversed(shape), reversed(stride)):
        if size != 1 and step != expected:
            return Tensor(shape, dtype, tuple(stride)) if 0 not in shape else Tensor(shape, dtype)
        expected *= size
    return Tensor(shape, dtype)


class Other(NamedTuple):
    """An argument that is neither tensor, scalar, text nor sequence: its type's name and a short text."""

    type: str
    text: str = ""


Value = Union[Tensor, Other, None, bool, int, float, str, tuple["Value", ...]]


class Arg(NamedTuple):
    """One argument of a call; `name` is empty for a positional one."""

    name: str
    value: Value


class Call(NamedTuple):
    """A call with its arguments, in the caller's spelling: the *signature* that a cost belongs to.

    `mod` is the namespace ("torch.nn.functional", "Tensor", "aten"), `op` the name in it ("linear", "aten::mm").
    `flops` are those that another tool recorded with the event.
    """

    mod: str
    op: str
    args: tuple[Arg, ...] = ()
    flops: int | None = None


# Sources of the figures of a cost: a formula; a view, which moves no data; the default rule (the bytes of the tensors
# of an operator without a formula); none; a formula with assumptions about data missing from the recording; FLOPs that
# the recording has, with bytes by the default rule. Databases store the index: add new ones at the end.
BASES = ("formula", "view", "default", "unknown", "approximate", "recorded")


class Cost(NamedTuple):
    """FLOPs and algorithmic bytes of one call, and of the parts of its backward. None means unknown.

    dgrad is the gradient of the first operand (or all of an undivided backward), wgrad of the weight or second
    operand, bgrad of the bias. `basis` is the source of the figures, one of `BASES`. `flops` are executed;
    `dense` is the need of the model: with the structure that the call skips (the upper triangle of a causal mask, the
    zeros of 2:4 sparsity), without recomputation (the scores in the backward of a fused attention); None if the same.

    >>> Cost(6, 8, dense=10).flops_dense, Cost(6, 8).flops_dense
    (10, 6)
    """

    flops: int | None
    bytes: int | None
    dgrad: Cost | None = None
    wgrad: Cost | None = None
    bgrad: Cost | None = None
    basis: str = "formula"
    dense: int | None = None

    @property
    def flops_dense(self) -> int | None:
        """FLOPs as papers count them for MFU; `flops` if both are the same."""
        return self.flops if self.dense is None else self.dense

    def __repr__(self) -> str:
        return f"Cost(flops={self.flops}, bytes={self.bytes})"


class Column(NamedTuple):
    """Numbers of which some may be missing. `present` None: none is missing."""

    values: Ints
    present: Bools | None = None

    def mask(self) -> Bools:
        return np.ones(len(self.values), bool) if self.present is None else self.present

    def take(self, index: Ints | Bools | slice) -> Column:
        return Column(self.values[index], None if self.present is None else self.present[index])

    @staticmethod
    def missing(n: int) -> Column:
        """Return a column in which every value is missing; takes no memory."""
        return Column(np.broadcast_to(np.int64(0), n), np.broadcast_to(np.False_, n))


class Strings:
    """Distinct texts, each with a code: columns hold the codes.

    >>> strings = Strings()
    >>> strings.code("aten::mm"), strings.code("aten::mm"), strings[0]
    (0, 0, 'aten::mm')
    """

    def __init__(self) -> None:
        self.texts: list[str] = []
        self._codes: dict[str, int] = {}

    def code(self, text: str) -> int:
        code = self._codes.get(text)
        if code is None:
            code = self._codes[text] = len(self.texts)
            self.texts.append(text)
        return code

    def codes(self, texts: Sequence[str]) -> Ints:
        """Return the codes of many texts, as int32."""
        try:
            return np.array([*map(self._codes.__getitem__, texts)], np.int32)
        except KeyError:
            return np.array([*map(self.code, texts)], np.int32)

    def __getitem__(self, code: int) -> str:
        return self.texts[code]

    def __len__(self) -> int:
        return len(self.texts)


# Kinds of a range, and of a GPU event or row.
PUSH_POP, START_END, MARK = 0, 1, 2
KERNEL, MEMCPY, MEMSET, OPERATOR, GRAPH = 0, 1, 2, 3, 4
KERNELS = (KERNEL, GRAPH)  # a replay of a CUDA graph that was recorded as a whole counts as a kernel
# Source: ENUM_CUDA_MEM_KIND of Nsight Systems' exports.
MEMORY_KINDS = {
    0: "pageable", 1: "pinned", 2: "device", 3: "array", 4: "managed", 5: "device static", 6: "managed static"
}  # fmt: skip
KINDS = ("kernel", "memcpy", "memset", "operator", "graph")
DIRECTIONS = ("fprop", "bprop", "na")
FPROP, BPROP, NO_DIRECTION = 0, 1, 2
PHASES = ("forward", "backward", "recompute", "optimizer", "none")
FORWARD, BACKWARD, RECOMPUTE, OPTIMIZER, NO_PHASE = 0, 1, 2, 3, 4
NO_MODULE = "outside of modules"  # as it is shown


class Thread(NamedTuple):
    """A thread of a recorded process: `process` indexes `Trace.processes`, `tid` is the system thread id."""

    process: int
    tid: int


class Process(NamedTuple):
    """A recorded process. `label` is its name in its file; `span` counts the recordings of one process from 1."""

    pid: int
    name: str | None = None
    rank: int | None = None
    host: str | None = None
    label: str | None = None
    span: int = 1


@dataclass
class Ranges:
    """NVTX ranges and marks, PyProf's own among them. `text` has the varying numbers cut off (marker.split)."""

    thread: Ints
    start: Ints
    end: Column  # missing: the range was never closed
    text: Ints
    operator: Bools  # the text had a suffix of emit_nvtx
    kind: Ints
    seq: Column
    domain: Ints  # name of the NVTX domain; "" is the default one

    def __len__(self) -> int:
        return len(self.start)


@dataclass
class Ops:
    """RecordFunction events. `text` is the operator's marker: name, shapes, dtypes, strides, scalars."""

    thread: Ints
    start: Ints
    end: Ints
    scope: Ints  # 0 function, 1 backward function, 7 user range (at::RecordScope)
    name: Ints
    text: Ints
    seq: Column
    forward_thread: Column  # index of the thread that ran the forward of this backward event
    stack: Ints  # index in Trace.stacks, -1: not recorded
    order: Column  # order of their starts, as counted by the recorder: breaks ties between equal times

    def __len__(self) -> int:
        return len(self.start)


@dataclass
class Launches:
    """CUDA runtime and driver calls: launches, and all others that were recorded."""

    thread: Ints
    start: Ints
    end: Ints
    correlation: Ints
    name: Ints
    stack: Ints  # index in Trace.stacks, -1: not recorded, or that of the operator around it
    kernel: Column  # name of the launched kernel, if the call itself has it
    node: Column  # during graph capture: the created node

    def __len__(self) -> int:
        return len(self.start)


@dataclass
class Gpu:
    """Kernels, copies, sets and whole replays of graphs on a device. `process` is -1 where it is unknown; `grid` and
    `block` are (n, 3)."""

    process: Ints
    device: Column
    context: Column
    stream: Column
    start: Ints
    end: Ints
    kind: Ints
    name: Ints
    grid: Column
    block: Column
    registers: Column
    shared_memory: Column  # bytes per block, static and dynamic
    correlation: Column
    bytes: Column
    graph_node: Column
    occupancy: Column  # percent, as the recording estimates it
    op: Ints  # row in ops of its operator wherever it was launched; -1: determined by its launch
    source_kind: Column  # of a copy: kind of memory (0 pageable, 1 pinned, 2 device ...: Nsight's numbers)
    target_kind: Column

    def __len__(self) -> int:
        return len(self.start)


@dataclass
class Io:
    """Calls into the operating system (OSRT), if the recording has them."""

    thread: Ints
    start: Ints
    end: Ints
    name: Ints

    def __len__(self) -> int:
        return len(self.start)


class Stack(NamedTuple):
    """A call stack, outermost first, without the frames of torch itself, and the path of the running module."""

    frames: tuple[str, ...] = ()
    module: str | None = None


@dataclass
class Functions:
    """Calls of Python functions, if the recording has them."""

    thread: Ints
    start: Ints
    end: Ints
    name: Ints

    def __len__(self) -> int:
        return len(self.start)


@dataclass
class Memory:
    """Allocations (`bytes` > 0) and frees (< 0); `allocated` and `reserved` are the totals afterwards."""

    thread: Ints
    time: Ints
    device: Column  # missing: the CPU
    address: Column
    bytes: Ints
    allocated: Column
    reserved: Column

    def __len__(self) -> int:
        return len(self.time)


class Collective(NamedTuple):
    """Description of one collective: name as in c10d (`all_reduce`), bytes that each rank sends and receives, dtype,
    the process group, its size, and the collective's number in it."""

    name: str
    sent: int | None = None
    received: int | None = None
    dtype: str | None = None
    group: str | None = None
    size: int | None = None
    seq: int | None = None


@dataclass
class Collectives:
    """Collectives described by the recording: of a GPU event (`gpu`, its row), or, if that is -1, of all launches of a
    thread from start to end."""

    gpu: Ints
    thread: Ints
    start: Ints
    end: Ints
    what: list[Collective]

    def __len__(self) -> int:
        return len(self.what)


def no_functions() -> Functions:
    return Functions(*(np.empty(0, np.int64) for _ in range(4)))


def no_memory() -> Memory:
    none = np.empty(0, np.int64)
    return Memory(none, none, Column(none), Column(none), none, Column(none), Column(none))


def no_collectives() -> Collectives:
    none = np.empty(0, np.int64)
    return Collectives(none, none, none, none, [])


@dataclass
class Steps:
    """Steps marked by the training loop, from start to end."""

    process: Ints
    number: Ints
    start: Ints
    end: Ints

    def __len__(self) -> int:
        return len(self.start)


READING, NO_OPERATORS = "reading", "no operators"  # kinds of pauses in a file of PyProf


@dataclass
class Pauses:
    """Time that is not the program's: it waited while its recording was read, or (`waited` False) torch's profiler did
    not record operators."""

    process: Ints
    start: Ints
    end: Ints
    waited: Bools

    def __len__(self) -> int:
        return len(self.start)


def no_pauses() -> Pauses:
    none = np.empty(0, np.int64)
    return Pauses(none, none, none, none.astype(bool))


@dataclass
class LoaderBatches:
    """Batches that workers of a data loader made. A worker had the indices at `start`, the samples at `collate_start`,
    the batch at `collate_end`, and had sent it at `send_end`. `pid`: of the worker; `cpu`: time of its thread from
    `start` to `collate_end`; `send_cpu`: of its thread that sends; `slowest`: time of the sample that took longest.
    The loop waited for the batch from `wait_start` to `wait_end`, which are missing if it never did."""

    process: Ints
    loader: Ints  # number of its facts, loader_workers.*
    pid: Ints
    number: Ints  # in its epoch
    samples: Ints
    start: Ints
    collate_start: Ints
    collate_end: Ints
    send_end: Ints
    cpu: Ints
    send_cpu: Ints
    slowest: Column
    slowest_sample: Column
    pin_start: Column
    pin_end: Column
    wait_start: Column
    wait_end: Column

    def __len__(self) -> int:
        return len(self.start)


def no_loader_batches() -> LoaderBatches:
    none = np.empty(0, np.int64)
    columns: dict[str, Any] = {item.name: none for item in fields(LoaderBatches)}
    for name in ("slowest", "slowest_sample", "pin_start", "pin_end", "wait_start", "wait_end"):
        columns[name] = Column(none)
    return LoaderBatches(**columns)


class Device(NamedTuple):
    """A device of the recording; `process` indexes `Trace.processes`, None: all of them see it."""

    number: int
    name: str
    sm_count: int | None = None
    compute_capability: str | None = None
    memory_bytes: int | None = None
    clock_hz: int | None = None  # of the multiprocessors, boosted
    bandwidth: int | None = None  # of the device's memory, bytes per second
    process: int | None = None


KEPT = "kept)"  # ends the reason of events that were not left out
NOT_READ = "recordings not read: "  # begins the reason of recordings that are missing, before a sentence


@dataclass
class Trace:
    """One recording of any origin, as columns. A table that the recording lacks is empty.

    The columns `text` and `name` index `strings`; `thread` indexes `threads`.
    `lost` counts dropped events, by reason. `slack` is the possible error of a time in ns, from rounding or from
    reading two clocks: ranges that overlap by no more than that follow each other (see `intervals.clip`). `calls` has
    the decoded form of texts that need not be decoded again.
    """

    path: str
    format: str
    strings: Strings
    processes: list[Process]
    threads: list[Thread]
    ranges: Ranges
    ops: Ops
    launches: Launches
    gpu: Gpu
    io: Io
    steps: Steps
    pauses: Pauses = field(default_factory=no_pauses)
    functions: Functions = field(default_factory=no_functions)
    memory: Memory = field(default_factory=no_memory)
    collectives: Collectives = field(default_factory=no_collectives)
    loader_batches: LoaderBatches = field(default_factory=no_loader_batches)
    stacks: list[Stack] = field(default_factory=list)
    calls: dict[int, Call] = field(default_factory=dict)
    slack: int = 0
    devices: list[Device] = field(default_factory=list)
    meta: dict[str, str] = field(default_factory=dict)
    sources: dict[str, str] = field(default_factory=dict)  # texts of source files, by their names in stacks
    lost: dict[str, int] = field(default_factory=dict)
    t0: int = 0  # the first event, step or pause on the recording's own clock, ns

    def repair(self, reason: str, count: int = 1) -> None:
        """Count events that were incomplete or contradictory, and kept. The reason ends in `KEPT`."""
        assert reason.endswith(KEPT), reason
        self.drop(reason, count)

    def drop(self, reason: str, count: int = 1) -> None:
        """Count events that were left out."""
        if count:
            self.lost[reason] = self.lost.get(reason, 0) + int(count)

    def losses(self) -> str:
        """Return the losses as a continuation of a sentence: ", 3 GPU events without a start"; "" if there are none."""
        return "".join(f", {count} {reason}" for reason, count in self.lost.items())


class Site(NamedTuple):
    """Origin of a kernel: the ranges and operators around its launch.

    `calls` go outermost first and match `markers`, the texts they came from; `mods` and `ops` name them. The last of
    them may be the operator event itself (mod "aten"). `seq_names` are the enclosing operator ranges with the offset
    of their sequence number from the row's `seq`, None for a range without a number.
    """

    layer: tuple[str, ...] = ()
    trace: tuple[str, ...] = ()
    reprs: tuple[str, ...] = ()
    markers: tuple[str, ...] = ()
    calls: tuple[Call, ...] = ()
    seq_names: tuple[tuple[str, int | None], ...] = ()
    seq_ids: tuple[int, ...] = ()  # offsets of the row's own sequence numbers
    alt_seq_ids: tuple[int, ...] = ()
    direction: int = NO_DIRECTION
    phase: int = NO_PHASE
    mods: tuple[str, ...] = ()
    ops: tuple[str, ...] = ()
    module: str | None = None
    functions: str | None = None  # DLProf's function stack, in its spelling
    ranges: tuple[str, ...] = ()  # other ranges around the call, outermost first


@dataclass
class Rows:
    """Kernels (or, without a GPU, operator events) with the call that launched them, in output order.

    One row is one line of net.dict. `site` indexes `sites`; `name` indexes `names`; `duration` is the time on the
    device, for an operator event its self time. `call` numbers the outermost call, one number per instance;
    `inner_calls` number the recorded calls inside it, outermost first (none in PyProf's captures). `launcher` numbers
    the innermost operator, one number per instance. `process` distinguishes processes, whose pids may be equal on two
    hosts; -1 is unknown.
    """

    names: list[str]  # full names
    short_names: list[str]
    sites: list[Site]
    name: Ints
    site: Ints
    start: Ints
    end: Ints
    duration: Ints
    launch_start: Column
    launch_end: Column
    correlation: Column
    pid: Column
    tid: Column
    context: Column
    device: Column  # missing: the CPU
    stream: Column
    grid: Column
    block: Column
    registers: Column
    shared_memory: Column
    graph: Column
    kind: Ints
    seq: Column
    sub: Ints
    call: Column
    inner_calls: list[Column]
    launcher: Column
    forward_thread: Column
    process: Ints
    lost: dict[str, int] = field(default_factory=dict)

    def __len__(self) -> int:
        return len(self.start)

    def keep_events(self) -> None:
        """Release what costs are made of: the calls of the rows, and where they were made."""
        none = np.empty(0, np.int32)
        self.sub, self.inner_calls = none, []
        self.call = self.launcher = self.seq = self.forward_thread = self.pid = self.tid = Column(none)
