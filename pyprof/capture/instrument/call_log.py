# SPDX-License-Identifier: Apache-2.0
"""Calls of one function, for an estimate: operators, arguments and modules. No times, no stacks, no file.

Calls come from the wrappers that a window uses (`patch.py`), built by `noting`. Operators that run outside every
such call (a name imported earlier, a custom operator, a scripted module) are caught by a dispatch mode below and
become calls of their own. Operators inside a call are noted with it, for calls whose own name has no formula.

Nothing is noted in a backward: its cost follows from the forward's calls. No tensor is kept, no value is read.
"""

from __future__ import annotations

import functools
import os
import weakref
from collections.abc import Callable
from types import FunctionType, MethodType
from typing import Any, NamedTuple

import torch
from torch.autograd import forward_ad

from pyprof.capture.core.internal_errors import internal
from pyprof.capture.core.torch_internals import graph_task, look_up
from pyprof.capture.instrument.arguments import Key, Traced, arguments, key_of
from pyprof.capture.instrument.recorder import ThreadState, local, recorder
from pyprof.capture.instrument.wrappers import Function, named_like
from pyprof.core.model import Arg, Call, Value

_getpid = os.getpid
_tree_leaves = look_up(
    "torch.utils._pytree.tree_leaves",
    "tensors in lists, in estimates",
    lambda value: [value],
    check=lambda leaves: leaves([0]),
)
_tracer = look_up(
    "torch.fx.experimental.proxy_tensor.get_proxy_mode",
    "",
    lambda: None,
    check=lambda mode: mode(),
)
_transforms = look_up("torch._C._are_functorch_transforms_active", "", lambda: False, check=lambda ask: ask())
_is_batched = look_up(
    "torch._C._functorch.is_batchedtensor",
    "",
    lambda tensor: False,
    check=lambda ask: ask(torch.empty(0, device="cpu")),
)
_is_wrapped = look_up(
    "torch._C._functorch.is_functorch_wrapped_tensor",
    "",
    lambda tensor: False,
    check=lambda ask: ask(torch.empty(0, device="cpu")),
)
_inside = look_up("torch._C._functorch.get_unwrapped", "", lambda tensor: None, check=lambda ask: ask.__name__)
_NO_WORK = ("prim::", "profiler::")  # reading a property of a tensor; beginning and ending a range


class Noted(NamedTuple):
    """One outermost call.

    `tensors`: its distinct tensor arguments, then those of its result. `inner`: the operators that it ran.
    `module` is the path of the innermost module, `root` the class of the outermost one, "" outside of modules.
    """

    call: Call
    module: str
    root: str
    tensors: tuple[Value, ...]
    inner: tuple[Call, ...]


class _Row(NamedTuple):
    call: Call
    context: int
    tensors: tuple[Value, ...]
    inner: tuple[int, ...]  # ids of the calls, which `Notes` keeps


def noting(original: Function, number: int) -> Function:
    """Return a wrapper that calls `original` and notes the call as `recorder.functions[number]`, if it is the
    outermost."""
    record, thread = recorder, local

    def call(*args: Any, **kwargs: Any) -> Any:
        state = thread.state
        observer = record.observer
        if state.busy or observer is None or not observer.begin(state, number, args, kwargs):
            return original(*args, **kwargs)
        try:
            result = original(*args, **kwargs)
        finally:
            observer.leave(state)
        observer.end(number, result)
        return result

    return named_like(call, original)


class Notes:
    """Calls of one function so far, on the thread that created this object."""

    def __init__(self) -> None:
        self.elsewhere = 0  # calls on other threads, which are not noted
        self.undescribed = 0  # calls whose arguments could not be noted
        self.rows: list[Noted] = []  # the calls in order, after `close`; equal ones are one object
        self.parameters: dict[tuple[str, str], int] = {}  # (root, module path) -> number of own elements
        self._state = local.state
        self._pid = _getpid()
        self._calls: dict[Any, Call] = {}
        self._numbers: dict[Any, int] = {}
        self._rows: list[_Row] = []
        self._order: list[int] = []
        self._before: tuple[Call, tuple[Value, ...]] = Call("", ""), ()
        self._inner: list[Call] = []
        self._models: dict[int, weakref.ref[torch.nn.Module]] = {}

    def of_this_thread(self) -> bool:
        """Return whether these notes belong to the running thread."""
        return local.state is self._state and _getpid() == self._pid

    def begin(self, state: ThreadState, number: int, args: tuple[Any, ...], kwargs: dict[str, Any]) -> bool:
        """Begin a wrapped call."""
        if not self._accepts(state) or (_transforms() and _batched((args, kwargs))) or _differentiates_forward():
            # Under vmap a call sees one element of the batch, and nothing of what forward-mode derivatives add: count
            # its operators as calls.
            return False
        mod, op = recorder.functions[number]
        try:
            self._before = self._describe(mod, op, args, kwargs), _tensors((args, kwargs))
        except Traced:  # a tracer's stand-in: the call computes nothing
            return False
        except internal():  # never into the user's code
            self.undescribed += 1
            self._before = Call(mod, op), ()
        self._inner = []
        state.busy = True
        return True

    def leave(self, state: ThreadState) -> None:
        """Leave a wrapped call, which has returned or raised."""
        state.busy = False

    def end(self, number: int, result: Any) -> None:
        """Note a wrapped call that has returned."""
        call, tensors = self._before
        self._add(call, tensors, result)

    def operator(self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Run an operator for the dispatch mode."""
        state = self._state
        if recorder.observer is not self or not self._accepts(local.state):
            return func(*args, **kwargs)
        schema = getattr(func, "_schema", None)
        name = getattr(schema, "name", None) or str(func)
        if name.startswith(_NO_WORK):
            return func(*args, **kwargs)
        try:
            call, tensors = self._operator_call(schema, name, args, kwargs), _tensors((args, kwargs))
        except Traced:
            return func(*args, **kwargs)
        except internal():  # never into the user's code
            self.undescribed += 1
            call, tensors = Call(name.partition("::")[0], name), ()
        if state.busy:
            self._inner.append(call)
            return func(*args, **kwargs)
        self._inner = []
        state.busy = True
        try:
            result = func(*args, **kwargs)
        finally:
            state.busy = False
        self._add(call, tensors, result)
        return result

    def higher_order(self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any], wrap: Callable[[Any], Any]) -> Any:
        """Run an operator that takes functions: flex_attention is a call; for others the operators inside are calls.

        `seen` wraps a function so that its operators are noted. If nothing was noted inside, the operator is a call
        of unknown cost.
        """
        name = getattr(func, "__name__", str(func))
        if name.startswith("flex_attention"):
            return self.operator(func, args, kwargs)
        before = len(self._order), len(self._inner)
        result = func(*(wrap(arg) if _is_program(arg) else arg for arg in args), **kwargs)
        if before == (len(self._order), len(self._inner)) and not self._state.busy and self._accepts(local.state):
            self._row(_Row(self._keep((name,), Call("higher_order", name)), self._state.context, _tensors(result), ()))
        return result

    def _operator_call(self, schema: Any, name: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Call:
        """Return the call of an operator. Arguments of torch's own operators stay positional; those of others get the
        names of their schema."""
        mod = name.partition("::")[0] if "::" in name else "higher_order"
        if mod != "aten" and schema is not None:
            kwargs = {**dict(zip((a.name for a in schema.arguments), args)), **kwargs}
            args = ()
        return self._describe(mod, name, args, kwargs)

    def add_model(self, root: torch.nn.Module, path_of: Callable[[torch.nn.Module], str | None]) -> None:
        """Count the parameters of a model; one that several modules share counts in the first."""
        reference = self._models.get(id(root))
        if reference is not None and reference() is root:
            return
        self._models[id(root)] = weakref.ref(root)
        name = path_of(root) or type(root).__name__
        seen: set[int] = set()
        for module in root.modules():
            count = 0
            for parameter in getattr(module, "_parameters", {}).values():
                if parameter is None or id(parameter) in seen or torch.nn.parameter.is_lazy(parameter):
                    continue
                seen.add(id(parameter))
                count += parameter.numel()
            key = name, path_of(module) or ""
            self.parameters[key] = self.parameters.get(key, 0) + count

    def close(self) -> None:
        """Finish the notes: resolve the modules while their contexts are known."""
        contexts = recorder.stacks.contexts
        calls = {id(call): call for call in self._calls.values()}
        rows = []
        for row in self._rows:
            root = row.context
            while contexts[root].parent:
                root = contexts[root].parent
            rows.append(
                Noted(
                    row.call, contexts[row.context].path, contexts[root].path, row.tensors,
                    tuple(calls[inner] for inner in row.inner),
                )
            )  # fmt: skip
        self.rows = [rows[number] for number in self._order]

    def absorb(self, other: Notes) -> None:
        """Add the notes of an estimate that ran inside this one."""
        for call in other._calls.values():
            self._keep((id(call),), call)
        for number in other._order:
            self._row(other._rows[number])
        for key, count in other.parameters.items():
            self.parameters.setdefault(key, count)

    def _accepts(self, state: ThreadState) -> bool:
        if graph_task() >= 0 or _getpid() != self._pid:
            return False
        if _tracer() is not None:  # torch.cond traces its functions before it runs one of them
            return False
        if state is not self._state:
            self.elsewhere += 1
            return False
        return True

    def _describe(self, mod: str, op: str, args: Any, kwargs: Any) -> Call:
        key: Key = key_of(args, kwargs)
        try:
            call = self._calls.get((mod, op, key))
        except TypeError:  # a symbolic size has no hash
            call = Call(mod, op, arguments(key))
            return self._keep((id(call),), call)
        return call or self._keep((mod, op, key), Call(mod, op, arguments(key)))

    def _keep(self, key: Any, call: Call) -> Call:
        return self._calls.setdefault(key, call)

    def _add(self, call: Call, tensors: tuple[Value, ...], result: Any) -> None:
        try:
            tensors += _tensors(result)
        except internal():  # never into the user's code
            self.undescribed += 1
        self._row(_Row(call, self._state.context, tensors, tuple(map(id, self._inner))))

    def _row(self, row: _Row) -> None:
        key = id(row.call), row.context, row.tensors, row.inner
        number = self._numbers.setdefault(key, len(self._rows))
        if number == len(self._rows):
            self._rows.append(row)
        self._order.append(number)


def _differentiates_forward() -> bool:
    """Return whether forward-mode derivatives are computed: `torch.func.jvp`, `jacfwd` and dual tensors."""
    return bool(getattr(forward_ad, "_current_level", -1) >= 0)  # without it: as if there were none


def _batched(values: Any) -> bool:
    """Return whether a tensor stands for the elements of a batch, with or without a gradient wrapper of torch.func
    around it."""
    for leaf in _tree_leaves(values):
        while isinstance(leaf, torch.Tensor) and _is_wrapped(leaf):
            if _is_batched(leaf):
                return True
            leaf = _inside(leaf)
    return False


def _is_program(value: Any) -> bool:
    """Return whether an argument of a higher-order operator is a function of the program, not an operator passed to
    it."""
    return isinstance(value, (FunctionType, MethodType, torch.nn.Module, functools.partial))


def _tensors(values: Any) -> tuple[Value, ...]:
    """Return descriptions of the distinct tensors in some values."""
    tensors: dict[int, torch.Tensor] = {}
    for leaf in _tree_leaves(values):
        if isinstance(leaf, torch.Tensor):
            tensors[id(leaf)] = leaf
    described: tuple[Arg, ...] = arguments(key_of(tuple(tensors.values()), {}))
    return tuple(arg.value for arg in described)
