# SPDX-License-Identifier: Apache-2.0
"""Descriptions of models, optimizers and loaders, made when a hook first sees them in a window; weak references
only."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterable
from typing import Any

import torch

from pyprof.capture.core.internal_errors import internal, tolerated
from pyprof.capture.core.state import Until, owned
from pyprof.capture.core.torch_internals import DisableTorchFunction, is_tracing

_LONGEST = 500  # characters of a value
_MOST = 64  # models, optimizers, loaders


class SeenObjects:
    """Objects of the program that a hook has seen, by weak reference, each with its facts."""

    def __init__(self) -> None:
        self._entries: dict[int, tuple[weakref.ref[Any], dict[str, Any]]] = {}

    def add(self, item: Any, describe: Callable[[Any], dict[str, Any]]) -> None:
        """Describe an object on its first appearance."""
        entry = self._entries.get(id(item))
        if entry is not None and entry[0]() is item:
            return
        if len(self._entries) >= _MOST or is_tracing():
            return  # sizes read while torch.jit.trace runs become part of the traced graph
        if entry is not None:  # the old object died and its id was reused: keep its facts under another key
            self._entries[-len(self._entries)] = entry
        self._entries[id(item)] = weakref.ref(item), {}
        # A mode or a subclass of the user would see each x.dtype.
        with tolerated(), DisableTorchFunction():
            self._entries[id(item)][1].update(describe(item))

    def __iter__(self) -> Any:
        return iter(list(self._entries.values()))

    def clear(self) -> None:
        self._entries.clear()


models, optimizers, loaders = (owned(SeenObjects(), Until.WRITTEN) for _ in range(3))
# device -> dtype, if autocast was on when a module was entered
autocast: dict[str, str] = owned({}, Until.WRITTEN)


def note_model(module: torch.nn.Module) -> None:
    """Note a module that runs for the first time outside any other: it is a model."""
    models.add(module, _model)


def note_autocast() -> None:
    """Note the autocast state where a module is entered for the first time."""
    for device in autocast_devices():
        if torch.is_autocast_enabled(device):
            autocast[device] = as_text(torch.get_autocast_dtype(device))


def note_optimizer(optimizer: Any) -> None:
    """Note an optimizer that is about to step: at this point the gradients exist."""
    if isinstance(optimizer, torch.optim.Optimizer):
        optimizers.add(optimizer, _optimizer)


def note_loader(iterator: Any) -> None:
    """Note a DataLoader that is about to return its next batch."""
    loaders.add(iterator, _loader)


def clear() -> None:
    """Forget everything."""
    for objects in (models, optimizers, loaders):
        objects.clear()
    autocast.clear()


def as_text(value: Any) -> str:
    """Return a value as text: yes or no, a dtype without `torch.`, anything else as Python writes it."""
    if isinstance(value, bool):
        return "yes" if value else "no"
    return str(value).removeprefix("torch.")[:_LONGEST]


def uses_cuda() -> bool:
    """Return whether the program has initialized CUDA; PyProf never does."""
    initialized: Any = torch.cuda.is_initialized
    return bool(initialized())


def autocast_devices() -> tuple[str, ...]:
    return ("cpu", "cuda") if uses_cuda() else ("cpu",)


def _model(module: torch.nn.Module) -> dict[str, Any]:
    buffers = Total()
    for buffer in module.buffers():
        buffers.add(buffer)
    parameters, trainable, dtypes = Total(), Total(), set()
    for parameter in module.parameters():
        if parameters.add(parameter):
            dtypes.add(as_text(parameter.dtype))
            if parameter.requires_grad:
                trainable.add(parameter)
    return {
        "class": getattr(module, "original_name", None) or type(module).__name__,
        "training": module.training,
        "parameters": parameters.count,
        "parameters_bytes": parameters.bytes,
        "parameter_tensors": parameters.tensors,
        "trainable": trainable.count,
        "trainable_bytes": trainable.bytes,
        "buffers_bytes": buffers.bytes,
        "dtypes": ",".join(sorted(dtypes)),
    }


class Total:
    """Tensors, elements and bytes, by description; a tensor without one (not initialized yet) is skipped."""

    def __init__(self) -> None:
        self.tensors = self.count = self.bytes = 0

    def add(self, tensor: torch.Tensor) -> bool:
        try:
            with DisableTorchFunction():
                count, size = tensor.numel(), tensor.element_size()
        except internal():
            return False
        if type(count) is not int:  # a tracer's symbol: converting it would fix the traced size
            return False
        self.tensors, self.count, self.bytes = self.tensors + 1, self.count + count, self.bytes + count * size
        return True


def gradients(parameters: Iterable[torch.Tensor]) -> dict[str, Any]:
    total = Total()
    for parameter in parameters:
        # Reading the gradient of a non-leaf tensor warns.
        gradient = parameter.grad if parameter.is_leaf else None
        if gradient is not None:
            total.add(gradient)
    return {"gradients": total.count, "gradients_bytes": total.bytes}


# Numbers of a group are hyperparameters (lr, betas, eps), not settings of the implementation.
def _optimizer(optimizer: torch.optim.Optimizer) -> dict[str, Any]:
    groups = optimizer.param_groups
    parameters = [parameter for group in groups for parameter in group["params"]]
    total = Total()
    for parameter in parameters:
        total.add(parameter)
    flags: dict[str, Any] = {}
    for name in groups[0] if groups else ():
        values = {group.get(name) for group in groups if type(group.get(name)) in (bool, type(None))}
        if values and len(values) == 1 and type(groups[0][name]) in (bool, type(None)):
            flags[name] = "default" if groups[0][name] is None else groups[0][name]
        elif len(values) > 1:
            flags[name] = "mixed"
    for reference, facts in models:
        module = reference()
        if module is not None and facts.get("gradients") in (None, 0):
            facts.update(gradients(module.parameters()))
    kind = type(optimizer)
    return {
        "class": kind.__name__ if kind.__module__.startswith("torch.optim") else f"{kind.__module__}.{kind.__name__}",
        **flags,
        "groups": len(groups),
        "parameter_tensors": total.tensors,
        "parameters_bytes": total.bytes,
        **gradients(parameters),
    }


def _loader(iterator: Any) -> dict[str, Any]:
    """Return the settings of a DataLoader as its iterator holds them; the iterator has no reference to the loader."""
    workers = getattr(iterator, "_num_workers", None)
    return {
        "num_workers": workers,
        "workers_recorded": "_pyprof_loader" in vars(iterator) if workers else None,
        "pin_memory": getattr(iterator, "_pin_memory", None),
        "persistent_workers": getattr(iterator, "_persistent_workers", None),
        "prefetch_factor": getattr(iterator, "_prefetch_factor", None) if workers else None,
        "batch_size": getattr(getattr(iterator, "_index_sampler", None), "batch_size", None),
        "drop_last": getattr(iterator, "_drop_last", None),
        "dataset": type(getattr(iterator, "_dataset", None)).__name__,
    }
