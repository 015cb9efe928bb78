# SPDX-License-Identifier: Apache-2.0
"""Launches of Triton kernels, `kernel[grid](x, y, n)`: calls of the namespace `triton`, named like the kernel.

Triton is never imported for this: only a program that has imported it when the window opens is followed. Autotuners
and heuristics wrap the kernel and have its name. A launch inside a recorded call (an operator defined with
`torch.library.triton_op`) belongs to that call; Inductor does not launch its kernels in this way.
"""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable
from typing import Any, Protocol

import torch

from pyprof.capture.instrument.recorder import local, recorder

_INTERFACE = "triton.runtime.jit", "KernelInterface"


class Replaces(Protocol):
    """Registry of replaced attributes, `attribute_registry.Registry`."""

    def replace(self, owner: Any, name: str, new: Any) -> None: ...


def install(registry: Replaces, make: Callable[[Callable[..., Any], int], Callable[..., Any]]) -> None:
    """Follow launches until the registry is undone; `make` creates a wrapper, as `wrappers.recording` does."""
    interface = getattr(sys.modules.get(_INTERFACE[0]), _INTERFACE[1], None)
    original = vars(interface).get("__getitem__") if isinstance(interface, type) else None
    if original is None:
        return

    @functools.wraps(original)
    def __getitem__(self: Any, grid: Any) -> Any:
        launch = original(self, grid)
        if torch.compiler.is_dynamo_compiling() or not recorder.active or local.state.busy:
            return launch
        name = _name(self)
        return launch if name is None else make(launch, recorder.function("triton", name))

    registry.replace(interface, "__getitem__", __getitem__)


def _name(kernel: Any) -> str | None:
    """Return the kernel's Python name, below autotuners and heuristics."""
    for _ in range(8):
        name = getattr(kernel, "__name__", None)
        if isinstance(name, str):
            return name
        kernel = getattr(kernel, "fn", None)
    return None
