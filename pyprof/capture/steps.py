# SPDX-License-Identifier: Apache-2.0
"""Where the steps of a program end: where it says so, else where its first optimizer steps, else where its first
loader is asked for the next batch.

Loaders count only in a program without optimizers: one step may take several batches. What a better source says makes
the steps of a lesser one none.
"""

from __future__ import annotations

import gc
import weakref
from collections.abc import Callable
from typing import Any

from pyprof.capture.instrument import user_ranges

_NOBODY, _LOADER, _OPTIMIZER, _SCRIPT = range(4)


class Marks:
    """Who ends the steps of one that counts them. `found(again)` is called at an end that the script did not mark;
    `again`: the ends before it were none."""

    def __init__(self, found: Callable[[bool], object]):
        self._found = found
        self._source = _NOBODY
        self._optimizer: weakref.ref[Any] | None = None
        self._dataset: int | None = None  # of the loader, by its id: every epoch has an iterator of its own
        self._on_optimizer, self._on_loader = self._optimizer_step, self._loader_next

    def follow(self) -> None:
        """Begin to look for the ends of steps."""
        user_ranges.on_optimizer_step.append(self._on_optimizer)
        user_ranges.on_loader_next.append(self._on_loader)

    def leave(self) -> None:
        """Look no more; nothing if nobody looks."""
        if self._on_optimizer in user_ranges.on_optimizer_step:
            user_ranges.on_optimizer_step.remove(self._on_optimizer)
        if self._on_loader in user_ranges.on_loader_next:
            user_ranges.on_loader_next.remove(self._on_loader)

    def script(self) -> bool:
        """The script ends a step. Returns whether the ends that others gave before were none."""
        return self._from(_SCRIPT)

    def _from(self, source: int) -> bool:
        before, self._source = self._source, source
        return before not in (_NOBODY, source)

    def _optimizer_step(self, optimizer: Any) -> None:
        if self._source > _OPTIMIZER:
            return
        if self._optimizer is None:
            self._optimizer = weakref.ref(optimizer)
        if self._optimizer() is optimizer:
            self._found(self._from(_OPTIMIZER))

    def _loader_next(self, iterator: Any) -> None:
        if self._source > _LOADER:
            return
        dataset = id(getattr(iterator, "_dataset", None))
        if self._dataset is None and _optimizers():
            self._source = _OPTIMIZER  # it has not stepped yet
            return
        self._dataset = self._dataset or dataset
        if self._dataset == dataset and getattr(
            iterator, "_num_yielded", None
        ):  # the first batch ends no step
            self._found(self._from(_LOADER))


def _optimizers() -> bool:
    """Whether the program has an optimizer."""
    from torch.optim import Optimizer

    return any(issubclass(type(one), Optimizer) for one in gc.get_objects())
