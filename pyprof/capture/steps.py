# SPDX-License-Identifier: Apache-2.0
"""Detection of the ends of steps: from the script's marks, else from the first optimizer's steps, else from the first
loader's next batch.

Loaders count only in a program without optimizers: one step may take several batches. The first end from a better
source invalidates the steps of a lesser one.
"""

from __future__ import annotations

import gc
import weakref
from collections.abc import Callable
from typing import Any

from pyprof.capture.instrument import user_ranges

_NONE, _LOADER, _OPTIMIZER, _SCRIPT = range(4)


class Marks:
    """Source of step ends. `on_step(restart)` is called at an end that the script did not mark; `restart`: the ends
    before it do not count."""

    def __init__(self, on_step: Callable[[bool], object]):
        self._on_step = on_step
        self._source = _NONE
        self._optimizer: weakref.ref[Any] | None = None
        self._dataset: int | None = None  # id of the loader's dataset: every epoch has a new iterator
        self._on_optimizer, self._on_loader = self._optimizer_step, self._loader_next

    def follow(self) -> None:
        """Start watching for the ends of steps."""
        user_ranges.on_optimizer_step.append(self._on_optimizer)
        user_ranges.on_loader_next.append(self._on_loader)

    def leave(self) -> None:
        """Stop watching; does nothing if not watching."""
        if self._on_optimizer in user_ranges.on_optimizer_step:
            user_ranges.on_optimizer_step.remove(self._on_optimizer)
        if self._on_loader in user_ranges.on_loader_next:
            user_ranges.on_loader_next.remove(self._on_loader)

    def script(self) -> bool:
        """Note that the script ends a step. Returns whether earlier ends from other sources do not count."""
        return self._from(_SCRIPT)

    def _from(self, source: int) -> bool:
        before, self._source = self._source, source
        return before not in (_NONE, source)

    def _optimizer_step(self, optimizer: Any) -> None:
        if self._source > _OPTIMIZER:
            return
        if self._optimizer is None:
            self._optimizer = weakref.ref(optimizer)
        if self._optimizer() is optimizer:
            self._on_step(self._from(_OPTIMIZER))

    def _loader_next(self, iterator: Any) -> None:
        if self._source > _LOADER:
            return
        dataset = id(getattr(iterator, "_dataset", None))
        if self._dataset is None and _optimizers():
            self._source = _OPTIMIZER  # it has not stepped yet
            return
        self._dataset = self._dataset or dataset
        # The first batch does not end a step.
        if self._dataset == dataset and getattr(iterator, "_num_yielded", None):
            self._on_step(self._from(_LOADER))


def _optimizers() -> bool:
    """Return whether the program has an optimizer."""
    from torch.optim import Optimizer

    return any(issubclass(type(item), Optimizer) for item in gc.get_objects())
