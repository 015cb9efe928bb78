# SPDX-License-Identifier: Apache-2.0
"""Interpretation of a stack of ranges for whatever is launched inside it.

A path is the chain of ranges and operator events from a thread's outermost to one of them. A run of millions of
kernels has a few hundred paths, so each is computed once, from its parent's `Place` and its own text:

>>> outer = enter(Place(), read("layer:encoder", PLAIN), None)
>>> inner = enter(enter(outer, read("aten::linear", SUFFIXED), 0), read("aten::addmm", SUFFIXED), 1)
>>> inner.layer, [name for name, _ in inner.names], inner.direction == FPROP
(('encoder',), ['aten::linear', 'aten::addmm'], True)
"""

from __future__ import annotations

import re
from functools import lru_cache
from typing import NamedTuple

from pyprof.core.marker import (
    ACCUMULATE,
    CHECKPOINT_BACKWARD,
    CLOSURE,
    EVALUATE,
    CallMarker,
    LayerMarker,
    Marker,
    ModuleMarker,
    OperatorMarker,
    TraceMarker,
    UserMarker,
    announces_collective,
    decode,
    encode,
    is_backward,
    is_builtin_node,
    is_compiled,
    is_qualified,
    user_frames,
)
from pyprof.core.model import (
    BACKWARD,
    BPROP,
    FORWARD,
    FPROP,
    NO_DIRECTION,
    NO_PHASE,
    OPTIMIZER,
    RECOMPUTE,
    Arg,
    Call,
    Other,
    Site,
    Stack,
    Tensor,
)
from pyprof.core.serving import step_of

# Source of a text: a range, a range with a suffix of emit_nvtx, an operator event of PyProf's own capture.
PLAIN, SUFFIXED, EVENT = 0, 1, 2
# Effect of a range on the path.
OTHER, CALL, OPERATOR, BOUNDARY = 0, 1, 2, 3


class Label(NamedTuple):
    """A decoded text: the marker, its effect on a path, and the operator's name if it is one."""

    text: str
    marker: Marker
    role: int
    name: str = ""


class Place(NamedTuple):
    """The state at one point of the stack of ranges. `calls` and `names` restart where a backward begins."""

    direction: int = NO_DIRECTION
    phase: int = NO_PHASE
    layer: tuple[str, ...] = ()
    frames: tuple[str, ...] = ()
    functions: str | None = None
    reprs: tuple[str, ...] = ()
    calls: tuple[tuple[str, Call], ...] = ()
    event: tuple[str, Call] | None = None
    names: tuple[tuple[str, int | None], ...] = ()  # operator ranges, with the offset of their sequence number
    seq: int | None = None  # offset of the sequence number that applies
    module: str | None = None
    node: str | None = None  # the innermost backward range
    ranges: tuple[str, ...] = ()  # user ranges around all calls, without those of steps
    recompute_starts: bool = False
    closure: bool = False  # in a closure of an optimizer's step: the step's frames do not count
    compiling: bool = False  # torch.compile is at work: nothing that runs is part of the program


@lru_cache(maxsize=65536)
def read(text: str, source: int) -> Label:
    """Decode a text. Results are cached."""
    marker = decode(text, operator=source == SUFFIXED)
    if isinstance(marker, CallMarker):
        return _event_label(text, marker) if source == EVENT else Label(text, marker, CALL)
    if isinstance(marker, OperatorMarker):
        return Label(text, marker, BOUNDARY if is_backward(marker.name) else OPERATOR, marker.name)
    return Label(text, marker, OTHER)


def label(text: str, call: Call) -> Label:
    """Return the label of an operator event whose call is known."""
    return _event_label(text, CallMarker(call))


def _event_label(text: str, marker: CallMarker) -> Label:
    name = marker.call.op
    return Label(text, marker, BOUNDARY if is_backward(name) else OPERATOR, name)


def with_stack(place: Place, stack: Stack) -> Place:
    """Return the place inside an operator event with its own call stack. Recorded calls take precedence."""
    if place.calls:
        return place
    return place._replace(frames=stack.frames or place.frames, module=stack.module or place.module)


def enter(place: Place, label: Label, offset: int | None, recomputes: bool = False) -> Place:
    """Return the place inside a range. `offset` is its sequence number less that of the outermost range that has one;
    `recomputes` says that it is an operator of a forward that runs again inside a backward."""
    if place.compiling:
        return place._replace(recompute_starts=False, event=event_of(label) or place.event)
    place = place._replace(recompute_starts=False)
    marker = label.marker
    if label.role == CALL:
        assert isinstance(marker, CallMarker)
        return _enter_call(place, label.text, marker)
    if label.role == BOUNDARY:
        return _enter_backward(place, label, offset)
    if label.role == OPERATOR:
        recomputes = recomputes and place.direction == BPROP
        return _enter_operator(_recomputation(place) if recomputes else place, label, offset)
    if isinstance(marker, LayerMarker):
        return place._replace(layer=(*place.layer, marker.name))
    if isinstance(marker, TraceMarker):
        return place._replace(
            frames=marker.frames or place.frames,
            functions=(place.functions if place.calls else None) or marker.functions or place.functions,
            module=marker.module or place.module,
        )
    if isinstance(marker, ModuleMarker):
        return place._replace(reprs=(*place.reprs, label.text))
    if label.text.startswith(CLOSURE):
        return Place(layer=place.layer, module=place.module, closure=True, ranges=place.ranges)
    if label.text.startswith(("Optimizer.step#", "Optimizer.zero_grad#")):
        return place._replace(direction=FPROP, phase=OPTIMIZER)
    if place.calls or not isinstance(marker, UserMarker) or is_step(label.text):
        return place
    if not place.names and announces_collective(label.text):
        return _enter_operator(place, Label(label.text, OperatorMarker(label.text), OPERATOR, label.text), None)
    return place._replace(ranges=(*place.ranges, label.text))


_WORDS = re.compile(r"[a-z]+|[0-9]+")
_STEP_WORDS = frozenset(("step", "steps", "iter", "iters", "iteration", "iterations", "batch", "batches", "epoch"))


def is_step(text: str) -> bool:
    """Return whether a range marks a step of the training loop, or of a server.

    >>> [is_step(text) for text in ("ProfilerStep#3", "step 12", "train_step", "batch_7", "forward")]
    [True, True, True, True, False]
    >>> [is_step(text) for text in ("Iteration: 4", "epoch 3 batch 57", "Epoch[2] step 7 of 90", "layer 3", "footstep")]
    [True, True, True, False, False]
    >>> is_step("execute_context_2(812)_generation_30(30)"), is_step("step[DECODE bs=32]")
    (True, True)
    """
    if text.startswith("ProfilerStep#") or step_of(text) is not None:
        return True
    words = _WORDS.findall(text[:200].lower())
    first = next((index for index, word in enumerate(words) if word in _STEP_WORDS), None)
    if first is None or first > 1 or len(text) > 200:
        return False
    return all(word in _STEP_WORDS or word == "of" or word.isdigit() for word in words[first:])


def _enter_call(place: Place, text: str, marker: CallMarker) -> Place:
    frames = marker.trace or place.frames
    if (marker.call.mod, marker.call.op) == COMPILE:
        return Place(
            layer=place.layer or marker.layer, frames=frames, calls=((text, marker.call),), module=marker.module,
            recompute_starts=True, compiling=True,
        )  # fmt: skip
    if place.direction == BPROP and _is_recompute(place, frames):
        place = _recomputation(place)
    elif place.direction == NO_DIRECTION:
        place = place._replace(direction=FPROP, phase=FORWARD)
    if place.phase == FORWARD and (
        marker.call.mod.startswith("torch.optim") or (not place.closure and any(map(_OPTIMIZER.search, frames)))
    ):
        place = place._replace(phase=OPTIMIZER)
    return place._replace(
        calls=(*place.calls, (text, marker.call)),
        frames=frames,
        layer=place.layer or marker.layer,
        module=marker.module or place.module,
    )


def _recomputation(place: Place) -> Place:
    """Return the place of a forward that runs again inside a backward: a forward in its own right."""
    return place._replace(
        direction=FPROP, phase=RECOMPUTE, calls=(), event=None, names=(), seq=None, node=None, recompute_starts=True
    )


COMPILE = ("torch", "compile")
_CHECKPOINT = re.compile(r"torch/utils/checkpoint\.py")
_ENGINE = re.compile(r"torch/autograd/(?:graph|__init__)\.py")
_OPTIMIZER = re.compile(r"(?:torch/optim|apex/optimizers)/\w+\.py")


def _is_recompute(place: Place, frames: tuple[str, ...]) -> bool:
    """Return whether a call inside a backward recomputes a checkpoint, rather than being part of a user's
    autograd.Function.

    The stack inside this backward decides, because a checkpoint may run a backward of its own around it. Without a
    stack the node decides: only a hook of saved tensors calls Python from a generated node.
    """
    if frames and frames != place.frames:
        for frame in reversed(frames):
            if _CHECKPOINT.search(frame):
                return True
            if _ENGINE.search(frame):
                return False
        return False
    node = place.node or ""
    return node == CHECKPOINT_BACKWARD or is_builtin_node(node)


def _enter_backward(place: Place, label: Label, offset: int | None) -> Place:
    inside = place.node is not None and place.direction == BPROP
    in_node = inside and label.name != ACCUMULATE and not label.name.startswith(EVALUATE)
    seq = offset if offset is not None else (place.seq if in_node else None)
    # PyProf's own capture records whose gradient is accumulated: it gives the call and the module of what runs inside.
    named = label.marker if isinstance(label.marker, CallMarker) and label.marker.module else None
    return place._replace(
        direction=BPROP,
        phase=BACKWARD,
        calls=((label.text, named.call),) if named else (),
        reprs=(),
        module=named.module if named else None,
        event=None if named else event_of(label) or place.event,
        names=(*(place.names if inside else ()), (label.name, offset)),
        seq=seq,
        node=label.name.removeprefix(EVALUATE),
    )


def _enter_operator(place: Place, label: Label, offset: int | None) -> Place:
    if place.direction == NO_DIRECTION:
        place = place._replace(direction=FPROP, phase=FORWARD)
    forward = place.direction == FPROP
    around = not place.calls and (is_compiled(label.name) or (is_free(label) and offset is None))
    return place._replace(
        ranges=(*place.ranges, label.name) if around else place.ranges,
        event=event_of(label) or place.event,
        names=(*place.names, (label.name, offset)),
        seq=offset if forward and offset is not None else place.seq,
    )


def is_free(label: Label) -> bool:
    """Return whether a range is announced like an operator but has a free name, as in torch's own Python code
    (FSDP)."""
    return (
        label.role == OPERATOR
        and isinstance(label.marker, OperatorMarker)
        and not is_qualified(label.name)
        and not announces_collective(label.name)
    )


def event_of(label: Label) -> tuple[str, Call] | None:
    """Return the operator event of a label with its recorded inputs. emit_nvtx gives the shapes of tensors."""
    marker = label.marker
    if isinstance(marker, CallMarker):
        return label.text, marker.call
    if isinstance(marker, OperatorMarker) and label.role == OPERATOR and any(marker.sizes or ()):
        # An empty list is a number, a list of numbers, None or a tensor without dimensions.
        shapes = marker.sizes or ()
        call = Call("aten", marker.name, tuple(Arg("", Tensor(s, None) if s else Other("unknown")) for s in shapes))
        return encode(call), call
    return None


def site(place: Place, forward: Place | None, layers: tuple[str, ...] = ()) -> Site:
    """Return the Site of what is launched at `place`; `forward` is where the call was made whose backward this is.

    `layers` are names from start/end ranges outside the stack.
    """
    source = forward or place
    calls = source.calls if forward or place.direction != BPROP else place.calls
    chain = [*calls, *([place.event] if place.event else [])]
    mods, ops = tuple(c.mod for _, c in chain), tuple(c.op for _, c in chain)
    if place.direction == BPROP and place.node == ACCUMULATE:
        first = len(calls)  # the event itself, with its parameter
        mods, ops = ("torch.autograd", *mods[first:]), ("accumulate_grad", *ops[first:])
    elif not calls and source.names:
        # Without a recorded call the innermost operator names the row.
        name = source.names[-1][0].removeprefix(EVALUATE)
        if forward and is_compiled(name):  # of a compiled region: the operator inside its backward
            name = place.names[-1][0].removeprefix(EVALUATE)
        if ops[:1] != (name,):
            mods, ops = (name.rpartition("::")[0].partition("::")[0] or "na", *mods), (name, *ops)
    module = source.module or _class_path(source.functions)
    numbers = sorted({offset for _, offset in place.names if offset is not None})
    layer = (*layers, *source.layer) or tuple(module.split(".") if source.functions and module else ())
    return Site(
        layer=layer or (() if ops else source.ranges),  # outside of every operator there are only the ranges
        trace=user_frames(source.frames),
        reprs=source.reprs,
        markers=tuple(text for text, _ in chain),
        calls=tuple(call for _, call in chain),
        seq_names=place.names,
        seq_ids=() if place.seq is None else (place.seq,),
        alt_seq_ids=tuple(n for n in numbers if n != place.seq),
        direction=place.direction,
        phase=place.phase,
        mods=mods,
        ops=ops,
        module=module,
        functions=source.functions,
        ranges=source.ranges,
    )


_CLASS = re.compile(r"([^/:]+)::(?:_call_impl|_wrapped_call_impl|forward|__call__)(\(\d+\))?(?=/|$)")


def _class_path(functions: str | None) -> str | None:
    """Convert DLProf's `/train/Net::_call_impl/Net::forward/Conv2d::_call_impl(2)/Conv2d::forward/conv2d` to a module
    path.

    >>> _class_path("/train/Net::_call_impl/Net::forward/Conv2d::_call_impl(2)/Conv2d::forward/conv2d")
    'Net.Conv2d(2)'
    """
    path: list[str] = []
    for name, instance in _CLASS.findall(functions or ""):
        if not path or path[-1].partition("(")[0] != name:
            path.append(name + instance)
        elif instance and "(" not in path[-1]:
            path[-1] += instance
    return ".".join(path) or None
