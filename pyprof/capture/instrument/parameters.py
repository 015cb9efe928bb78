# SPDX-License-Identifier: Apache-2.0
"""Parameters behind AccumulateGrad events: torch's event carries neither name nor shape.

While a window is open, each parameter of a model that runs has a post-accumulate hook, which torch calls inside that
event. It notes the time and a number. The hooks are removed with the window; a parameter is held by weak reference
only. Not covered: parameters of a model whose forward ran before the window, tensors that are no module's parameter,
and gradients that are not set by the engine (FSDP's reduced shards).
"""

from __future__ import annotations

import weakref
from bisect import bisect_right
from collections.abc import Callable, Iterable
from time import time_ns
from typing import Any, NamedTuple

import torch
from torch.nn.parameter import is_lazy

from pyprof.capture.core.operators import Operators
from pyprof.capture.core.state import Slot, Until, owned
from pyprof.capture.core.torch_internals import DisableTorchFunction, is_tracing
from pyprof.capture.instrument.recorder import ThreadState, local, recorder
from pyprof.core.marker import ACCUMULATE
from pyprof.core.model import Arg, Call, Tensor


class Parameter(NamedTuple):
    """A parameter of a model, as it was when the model was first called."""

    name: str  # in the module that holds it
    module: str  # path of that module
    tensor: Tensor


class _Hooked(NamedTuple):
    reference: weakref.ref[torch.Tensor]
    hook: Callable[[torch.Tensor], None]


_HOOKS = "_post_accumulate_grad_hooks"  # of a tensor; a dictionary from the first hook on
_by_id: dict[int, _Hooked] = owned({}, Until.WRITTEN)
_parameters: list[Parameter] = owned([], Until.WRITTEN)
# with the handle that removes the hook
_installed: list[tuple[weakref.ref[torch.Tensor], Any]] = owned([], Until.FORKED, lambda _: remove())
_open = owned(Slot(False), Until.FORKED)


def follow(root: torch.nn.Module, path_of: Callable[[torch.nn.Module], str | None]) -> None:
    """Add hooks to the parameters of a model that runs for the first time. `path_of` returns a module's path."""
    if is_tracing():  # torch.jit.trace would record reading a size as an operator
        return
    with DisableTorchFunction():  # hide it from modes and subclasses of the program
        for module in root.modules():
            for name, parameter in getattr(module, "_parameters", {}).items():
                entry = _by_id.get(id(parameter))
                if parameter is None or (entry is not None and entry.reference() is parameter):
                    continue
                if parameter.requires_grad and parameter.is_leaf and not is_lazy(parameter):
                    _register(parameter, name, path_of(module) or "")


def _register(parameter: torch.nn.Parameter, name: str, module: str) -> None:
    tensor = Tensor(
        tuple(map(int, parameter.shape)),
        str(parameter.dtype).removeprefix("torch."),
        tuple(map(int, parameter.stride())) if parameter.layout == torch.strided else None,
    )
    number = len(_parameters)
    _parameters.append(Parameter(name, module, tensor))

    def hook(_: torch.Tensor) -> None:
        if recorder.keeping and not torch.compiler.is_dynamo_compiling():
            local.state.gradients += (time_ns(), number)

    hooked = _by_id[id(parameter)] = _Hooked(weakref.ref(parameter), hook)
    if _open.value:
        _hook(hooked)


def _hook(hooked: _Hooked) -> None:
    parameter = hooked.reference()
    if parameter is not None and parameter.requires_grad:
        handle = parameter.register_post_accumulate_grad_hook(hooked.hook)  # type: ignore[no-untyped-call]
        _installed.append((hooked.reference, handle))


def install() -> None:
    """Add the hooks to known models when a window opens."""
    _open.value = True
    if not _by_id:
        return
    with DisableTorchFunction():
        for hooked in _by_id.values():
            _hook(hooked)


def remove() -> None:
    """Remove all hooks."""
    _open.value = False
    if not _installed:
        return
    with DisableTorchFunction():
        for reference, handle in _installed:
            handle.remove()
            parameter = reference()
            if parameter is not None and getattr(parameter, _HOOKS, None) == {}:
                setattr(parameter, _HOOKS, None)  # as it was
    _installed.clear()


def name(operators: Operators, threads: Iterable[ThreadState]) -> None:
    """Give each AccumulateGrad event in which a hook fired its parameter, as an argument of its call, and the
    module."""
    places: dict[int, list[int]] = {}
    for place in operators.places(ACCUMULATE).tolist():
        places.setdefault(operators[place].tid, []).append(place)
    calls: dict[int, Call] = {}
    for state in threads:
        own_places = sorted(places.get(state.tid, ()), key=lambda place: operators[place].start)
        starts = [operators[place].start for place in own_places]
        for time, number in zip(state.gradients[::2], state.gradients[1::2]):
            index = bisect_right(starts, time) - 1
            if index < 0 or time > operators[own_places[index]].end:
                continue  # FSDP calls the hooks itself, for reduced shards; or no operators are recorded
            operator, parameter = operators[own_places[index]], _parameters[number]
            call = calls.get(number)
            if call is None:
                args = (Arg("parameter", parameter.name), Arg("variable", parameter.tensor))
                call = calls[number] = operator.call._replace(args=args)
            operators.name(own_places[index], call, parameter.module)
