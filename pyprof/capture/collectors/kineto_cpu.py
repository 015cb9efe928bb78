# SPDX-License-Identifier: Apache-2.0
"""CPU events of torch's profiler (Kineto), for every torch since 2.4.

Since torch 2.5 an event has its end, since 2.7 the overload of its operator, since 2.12 its kind, and strides and
the shapes in lists of tensors. In an older torch the tree of the same events has the missing data. A method that is
missing or has changed yields a placeholder for unknown (`torch_internals.py`), never an error.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Container, Sequence
from typing import Any, NamedTuple

from pyprof.capture.core.internal_errors import internal
from pyprof.capture.core.torch_internals import lack, look_up

_EVENT = "torch._C._autograd._KinetoEvent"
_RESULT = "torch._C._autograd._ProfilerResult"
_CPU_KINDS = ("cpu_op", "user_annotation")
_SHAPES = "shapes of operators' tensors"
# Calls of the runtime and the driver, and Kineto's events about its own work: ActivityType.h, CuptiActivity.cpp.
_NOT_OPERATORS = re.compile(
    r"(cuda|cu|hip|roc|cupti)[A-Z]\w*$|\[memory\]|Activity Buffer Request|Buffer Flush|Instrumentation|Resource|"
    r"Command Buffer Full|Lazy Function Loading|Runtime Triggered Module Loading|Unrecognized|INVALID"
)


class Unreadable(Exception):
    """Events that lack what a row needs: a name, times, a thread."""


class Input(NamedTuple):
    """One input of an operator, from the event tree: one tensor, or the tensors of a list."""

    shape: Any
    stride: Any
    dtype: Any


# (start, name) of an event -> its inputs; None is not a tensor.
Inputs = dict[tuple[int, str], tuple[Input | None, ...]]


class Reader:
    """The CPU events of one finished profile. Each attribute but `events` is a function of an event.

    `name`, `start`, `end` (ns of the Unix epoch), `tid` (system thread id), `scope`, `seq` (-1: none),
    `thread` and `forward_thread` (as Kineto numbers them), `dtypes`, `overload` (None: unknown), `concrete`,
    `shapes`, `strides`; `in_lists`: per input the dtypes of a list of tensors, or None.
    """

    def __init__(self, result: Any) -> None:
        """Read the events of a profile. Raises Unreadable."""
        events = list(result.events())
        self.events: list[Any] = []
        if not events:
            return
        sample = events[0]

        def method(name: str, otherwise: Any = None, without: str = "") -> Callable[[Any], Any]:
            reader = look_up(f"{_EVENT}.{name}", without, check=lambda function: function(sample))
            if reader is None:
                if otherwise is None:
                    raise Unreadable(f"events of this torch have no {name}")
                return lambda event: otherwise
            return reader  # type: ignore[no-any-return]

        self.name, self.start, self.tid = map(method, ("name", "start_ns", "device_resource_id"))
        self.end = self._end(method)
        self.scope = method("scope", 0, "which operators are a backward's, and ranges of record_function")
        self.seq = method("sequence_nr", -1, "which forward a backward belongs to")
        self.thread = method("start_thread_id", 0, "which forward a backward belongs to")
        self.forward_thread = method("fwd_thread_id", 0, "which forward a backward belongs to")
        self.dtypes = method("dtypes", (), "dtypes and shapes of operators")
        overload = look_up(f"{_EVENT}.overload_name", "", check=lambda function: function(sample))
        self.overload: Callable[[Any], str | None] = overload or (lambda event: None)
        self.concrete = method("concrete_inputs", (), "numbers among the arguments of operators")
        kind = method("activity_type", "")
        shapes, strides = method("structured_input_shapes", ()), method("structured_input_strides", ())
        has_kinds = bool(kind(sample))
        structured = bool(look_up(f"{_EVENT}.structured_input_shapes", ""))
        if has_kinds and structured:  # only shapes and strides in lists are missing
            lists = {self.start(event) for event in events if "TensorList" in self.dtypes(event)}
            tree = _tree(result, lists) if lists else {}
        else:
            tree = _tree(result)
        if has_kinds:
            self.events = [event for event in events if kind(event) in _CPU_KINDS]
        elif tree:  # the tree holds operators and ranges, but no CUDA runtime calls
            self.events = self._of_the_host(events, tree, method)
        else:
            self.events = events

        # Not through `self`: a cycle would keep torch's events until the garbage collector runs, in another window.
        start, name = self.start, self.name

        def inputs(event: Any) -> tuple[Input | None, ...]:
            return tree.get((start(event), name(event)), ())

        def in_lists(event: Any) -> tuple[tuple[str, ...] | None, ...]:
            return tuple(
                item.dtype if item is not None and isinstance(item.dtype, tuple) else None for item in inputs(event)
            )

        self.in_lists = in_lists
        self.shapes: Callable[[Any], Sequence[Any]]
        self.strides: Callable[[Any], Sequence[Any]]
        if structured:
            self.shapes, self.strides = shapes, strides
        elif tree:
            plain = method("shapes", (), _SHAPES)

            def tree_shapes(event: Any) -> Sequence[Any]:
                if (start(event), name(event)) not in tree:
                    return plain(event)  # type: ignore[no-any-return]
                return [[] if item is None else item.shape for item in inputs(event)]

            self.shapes = tree_shapes
            self.strides = lambda event: [None if item is None else item.stride for item in inputs(event)]
        else:
            self.shapes = method("shapes", (), _SHAPES)
            self.strides = lambda event: ()

    def _of_the_host(self, events: list[Any], tree: Inputs, method: Callable[..., Callable[[Any], Any]]) -> list[Any]:
        """Return the operators and ranges among events of unknown kind.

        Most are in the tree. Missing are those that began while the GPU ran the kernels of a range of this thread: the
        tree puts them below the range's image on the GPU, which is not in it. They have a scope or a sequence number
        that no other event has, or a name that no call of CUDA has.
        """
        device = method("device_type", "")
        cpu = look_up("torch._C._autograd.DeviceType.CPU", "")

        def is_of_the_host(event: Any) -> bool:
            if (self.start(event), self.name(event)) in tree:
                return True
            if cpu is None or device(event) != cpu:
                return False
            numbered = self.scope(event) > 0 or self.seq(event) >= 0
            return numbered or not _NOT_OPERATORS.match(self.name(event))

        return list(filter(is_of_the_host, events))

    def _end(self, method: Callable[..., Callable[[Any], Any]]) -> Callable[[Any], int]:
        end = method("end_ns", 0)
        if look_up(f"{_EVENT}.end_ns", "") is not None:
            return end
        start, duration = self.start, method("duration_ns")
        return lambda event: int(start(event) + duration(event))


def _tree(result: Any, starts: Container[int] | None = None) -> Inputs:
    """Return the inputs of operators and ranges of a profile by start and name, limited to `starts` if given. Empty if
    this torch has no such tree."""
    out: Inputs = {}
    try:
        operator = look_up("torch._C._profiler._EventType.TorchOp", _SHAPES)
        nodes = list(result.experimental_event_tree())
        while nodes:
            node = nodes.pop()
            nodes.extend(node.children)
            if (starts is None or node.start_time_ns in starts) and node.tag == operator:
                inputs = tuple(map(_input, getattr(node.extra_fields, "inputs", None) or ()))
                out[node.start_time_ns, node.name] = inputs
    except internal() as error:
        lack(f"{_RESULT}.experimental_event_tree", _SHAPES, error)
    return out


def _input(value: Any) -> Input | None:
    if isinstance(value, list):
        parts = [_tensor(item) for item in value]
        return Input(
            [part.shape for part in parts],
            [part.stride for part in parts],
            tuple(part.dtype for part in parts),
        )
    return _tensor(value) if hasattr(value, "sizes") else None


def _tensor(value: Any) -> Input:
    shape = list(getattr(value, "sizes", ()))
    stride = list(getattr(value, "strides", ()))
    dtype = str(getattr(value, "dtype", "")).removeprefix("torch.")
    return Input(shape, stride if len(stride) == len(shape) else None, dtype)
