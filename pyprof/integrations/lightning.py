# SPDX-License-Identifier: Apache-2.0
"""A callback and a profiler for Lightning's Trainer: `Trainer(callbacks=[PyProfCallback("net.sqlite")])`, or
`Trainer(profiler=Profiler("net.sqlite"))`, which also records Lightning's own actions as ranges.

In `fit` a step is one of the optimizer and has the trainer's number: during step 10, `trainer.global_step` is 10. What
runs between two steps (validation, loading) belongs to the later one. In `validate`, `test` and `predict` a step is a
batch, counted from 0. Both packages are supported, `lightning` and `pytorch_lightning`; where a program has imported
only the second, the classes are those of the second.
"""

from __future__ import annotations

import re
import sys
from typing import TYPE_CHECKING, Any

from pyprof.core.errors import MissingPackage

if TYPE_CHECKING:
    from typing import Unpack

    from lightning.pytorch import Callback, profilers

    from pyprof.capture.loops import Schedule

try:
    if not TYPE_CHECKING:
        if "pytorch_lightning" in sys.modules and "lightning" not in sys.modules:
            from pytorch_lightning import Callback, profilers
        else:
            from lightning.pytorch import Callback, profilers

    from pyprof.capture.instrument.user_ranges import annotate
    from pyprof.capture.loops import Loop
except ModuleNotFoundError as error:
    if error.name not in ("lightning", "torch"):
        raise
    raise MissingPackage(__name__, error.name, "lightning") from None

_FIT = "fit"
_RANGES = (
    "training_step", "validation_step", "test_step", "predict_step", "backward", "optimizer_step",
    "train_dataloader_next",
)  # fmt: skip


_BATCH_END = r"\[LightningModule\].*\.on_(?:validation|test|predict)_batch_end"


class _Steps:
    """The loop of a trainer, by its global step."""

    def __init__(self, loop: Loop):
        self._loop, self._number = loop, 0

    def begin(self, number: int) -> None:
        self._number = number
        self._loop.begin(number)

    def reached(self, number: int) -> None:
        """End a step if the number has changed; it has not after a batch whose gradients are only accumulated."""
        if number != self._number:
            self._loop.step(self._number)
            self._number = number

    def batch(self) -> None:
        """End a step that is a batch."""
        self.reached(self._number + 1)

    def end(self) -> None:
        self._loop.end()


class PyProfCallback(Callback):
    """Record steps of a training; options are those of `pyprof.profiled`."""

    def __init__(self, output: str | None = None, **options: Unpack[Schedule]):
        self._steps = _Steps(Loop(output, **options))

    def on_train_start(self, trainer: Any, pl_module: Any) -> None:
        """Begin the schedule; a checkpoint has done some steps."""
        self._steps.begin(trainer.global_step)

    def on_train_batch_end(self, trainer: Any, *args: Any, **kwargs: Any) -> None:
        """End a step, unless the batch was one of several."""
        self._steps.reached(trainer.global_step)

    def on_validation_start(self, trainer: Any, pl_module: Any) -> None:
        """Begin the schedule in `validate`."""
        self._begin(trainer)

    def on_test_start(self, trainer: Any, pl_module: Any) -> None:
        """Begin the schedule in `test`."""
        self._begin(trainer)

    def on_predict_start(self, trainer: Any, pl_module: Any) -> None:
        """Begin the schedule in `predict`."""
        self._begin(trainer)

    def on_validation_batch_end(self, trainer: Any, *args: Any, **kwargs: Any) -> None:
        """End a step of `validate`."""
        self._batch(trainer)

    def on_test_batch_end(self, trainer: Any, *args: Any, **kwargs: Any) -> None:
        """End a step of `test`."""
        self._batch(trainer)

    def on_predict_batch_end(self, trainer: Any, *args: Any, **kwargs: Any) -> None:
        """End a step of `predict`."""
        self._batch(trainer)

    def _begin(self, trainer: Any) -> None:
        if trainer.state.fn != _FIT:
            self._steps.begin(0)

    def _batch(self, trainer: Any) -> None:
        if trainer.state.fn != _FIT:
            self._steps.batch()

    def on_exception(self, trainer: Any, pl_module: Any, exception: BaseException) -> None:
        """Write the file; the error goes on."""
        self._steps.end()

    def teardown(self, trainer: Any, pl_module: Any, stage: str) -> None:
        """Write a window that is still open."""
        self._steps.end()


class Profiler(profilers.Profiler):
    """Record steps of a training, and Lightning's actions in them as ranges: steps, backward, optimizer, loading.
    Options are those of `pyprof.profiled`."""

    def __init__(self, output: str | None = None, **options: Unpack[Schedule]):
        super().__init__()
        self._steps = _Steps(Loop(output, **options))
        self._ranges: list[tuple[str, annotate]] = []
        self._open = 0  # actions
        self._running = False
        self._outer: BaseException | None = None  # which the program handled when it called the trainer

    def setup(self, stage: str, local_rank: int | None = None, log_dir: str | None = None) -> None:
        """Begin the schedule, except for `fit`, which first tries a validation."""
        super().setup(stage, local_rank, log_dir)
        self._outer, self._open, self._running = sys.exc_info()[1], 0, stage != _FIT
        if self._running:
            self._steps.begin(0)

    def start(self, action_name: str) -> None:
        """Begin an action."""
        self._open += 1
        if action_name == "run_training_epoch" and not self._running:
            self._running = True
            self._steps.begin(self._global_step())
        name = action_name.rpartition(".")[2]
        if name in _RANGES:
            opened = annotate(name)
            opened.__enter__()
            self._ranges.append((action_name, opened))

    def stop(self, action_name: str) -> None:
        """End an action. An outermost one that ends with an error ends the recording."""
        self._open -= 1
        if self._ranges and self._ranges[-1][0] == action_name:
            self._ranges.pop()[1].__exit__(None, None, None)
        if not self._running:
            return
        error = sys.exc_info()[1]
        if error is not None and error is not self._outer:
            if self._open == 0 and not isinstance(error, StopIteration):  # that one ends a loader
                self._steps.end()
        elif action_name == "run_training_batch":
            self._steps.reached(self._global_step())
        elif self._stage != _FIT and re.fullmatch(_BATCH_END, action_name):
            self._steps.batch()

    def _global_step(self) -> int:
        module: Any = vars(self)["_lightning_module"]  # set by the trainer
        return int(module.trainer.global_step)

    def teardown(self, stage: str | None) -> None:
        """Write a window that is still open."""
        self._running = False
        self._steps.end()
        super().teardown(stage)
