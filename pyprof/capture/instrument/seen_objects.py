# SPDX-License-Identifier: Apache-2.0
"""Describe models, optimizers and loaders when a hook first sees them in a window; held by weak reference only."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterable
from contextlib import suppress
from typing import Any

import torch

from pyprof.capture.core.torch_internals import DisableTorchFunction, is_tracing

_LONGEST = 500  # characters of a value
_MOST = 64  # models, optimizers, loaders


class SeenObjects:
    """Objects of the program that a hook has met, by weak reference, each with its facts."""

    def __init__(self) -> None:
        self._found: dict[int, tuple[weakref.ref[Any], dict[str, Any]]] = {}

    def add(self, item: Any, describe: Callable[[Any], dict[str, Any]]) -> None:
        """Describe an object that was not met before."""
        known = self._found.get(id(item))
        if known is not None and known[0]() is item:
            return
        if len(self._found) >= _MOST or is_tracing():
            return  # sizes that are read while torch.jit.trace runs become part of the traced graph
        if known is not None:  # it died meanwhile and its id came back: it keeps its facts under another key
            self._found[-len(self._found)] = known
        self._found[id(item)] = weakref.ref(item), {}
        # A mode or a subclass of the user would be told of each x.dtype.
        with suppress(Exception), DisableTorchFunction():
            self._found[id(item)][1].update(describe(item))

    def __iter__(self) -> Any:
        return iter(list(self._found.values()))

    def clear(self) -> None:
        self._found.clear()


models, optimizers, loaders = SeenObjects(), SeenObjects(), SeenObjects()
autocast: dict[str, str] = {}  # device -> dtype, where autocast was on when a module was met


def met_model(module: torch.nn.Module) -> None:
    """A module runs for the first time; one that is called from outside any other is a model."""
    models.add(module, _model)


def met_autocast() -> None:
    """Note the autocast state where a module is entered for the first time."""
    for device in autocast_devices():
        if torch.is_autocast_enabled(device):
            autocast[device] = as_text(torch.get_autocast_dtype(device))


def met_optimizer(optimizer: Any) -> None:
    """An optimizer is about to step: now the gradients are there."""
    if isinstance(optimizer, torch.optim.Optimizer):
        optimizers.add(optimizer, _optimizer)


def met_loader(iterator: Any) -> None:
    """A DataLoader is asked for its next batch."""
    loaders.add(iterator, _loader)


def clear() -> None:
    """Forget everything that was met."""
    for known in (models, optimizers, loaders):
        known.clear()
    autocast.clear()


def as_text(value: Any) -> str:
    """A value as text: yes and no, a dtype without `torch.`, all else as Python writes it."""
    if isinstance(value, bool):
        return "yes" if value else "no"
    return str(value).removeprefix("torch.")[:_LONGEST]


def uses_cuda() -> bool:
    """Whether the program has initialised CUDA; we never do."""
    initialised: Any = torch.cuda.is_initialized
    return bool(initialised())


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
    """Tensors, elements and bytes, by description; a tensor that has none (not yet initialised) is passed over."""

    def __init__(self) -> None:
        self.tensors = self.count = self.bytes = 0

    def add(self, tensor: torch.Tensor) -> bool:
        try:
            with DisableTorchFunction():
                count, size = tensor.numel(), tensor.element_size()
        except Exception:
            return False
        if type(count) is not int:  # a symbol of a tracer: to make a number of it would fix the traced size
            return False
        self.tensors, self.count, self.bytes = self.tensors + 1, self.count + count, self.bytes + count * size
        return True


def gradients(parameters: Iterable[torch.Tensor]) -> dict[str, Any]:
    total = Total()
    for parameter in parameters:
        # A tensor that is no leaf would warn when it is asked for its gradient.
        gradient = parameter.grad if parameter.is_leaf else None
        if gradient is not None:
            total.add(gradient)
    return {"gradients": total.count, "gradients_bytes": total.bytes}


# Numbers of a group are its recipe (lr, betas, eps), not how it is carried out.
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
    for reference, found in models:
        module = reference()
        if module is not None and found.get("gradients") in (None, 0):
            found.update(gradients(module.parameters()))
    kind = type(optimizer)
    return {
        "class": kind.__name__ if kind.__module__.startswith("torch.optim") else f"{kind.__module__}.{kind.__name__}",
        **flags,
        "groups": len(groups),
        "parameter_tensors": total.tensors,
        "parameters_bytes": total.bytes,
        **gradients(parameters),
    }  # fmt: skip


def _loader(iterator: Any) -> dict[str, Any]:
    """The settings of a DataLoader as its iterator holds them; it has no way back to the loader."""
    workers = getattr(iterator, "_num_workers", None)
    return {
        "num_workers": workers,
        "pin_memory": getattr(iterator, "_pin_memory", None),
        "persistent_workers": getattr(iterator, "_persistent_workers", None),
        "prefetch_factor": getattr(iterator, "_prefetch_factor", None) if workers else None,
        "batch_size": getattr(getattr(iterator, "_index_sampler", None), "batch_size", None),
        "drop_last": getattr(iterator, "_drop_last", None),
        "dataset": type(getattr(iterator, "_dataset", None)).__name__,
    }
