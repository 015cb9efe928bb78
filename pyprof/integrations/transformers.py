# SPDX-License-Identifier: Apache-2.0
"""A callback for the Trainer of transformers: `Trainer(..., callbacks=[PyProfCallback("net.sqlite")])`.

A step is one of the optimizer and has the trainer's number: during step 10, `global_step` is 10. Trainer has no event
for an error: a training that ends with one is written when the program ends, when the next training with a
`PyProfCallback` begins, or where the callback is used as a context, `with PyProfCallback("net.sqlite") as callback:`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar

from pyprof.core.errors import MissingPackage

try:
    from transformers import TrainerCallback

    from pyprof.capture.loops import Loop
except ModuleNotFoundError as error:
    if error.name not in ("transformers", "torch"):
        raise
    raise MissingPackage(__name__, error.name, "transformers") from None

if TYPE_CHECKING:
    from typing import Unpack

    from pyprof.capture.loops import Schedule


class PyProfCallback(TrainerCallback):
    """Record steps of a training; options are those of `pyprof.profiled`."""

    # The loop of the training that began last, and its state: it may have ended with an error.
    _last: ClassVar[tuple[Loop, Any] | None] = None

    def __init__(self, output: str | None = None, **options: Unpack[Schedule]):
        self._loop = Loop(output, **options)

    def __enter__(self) -> PyProfCallback:
        return self

    def __exit__(self, *error: object) -> None:
        self._loop.end()

    def on_train_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """Begin the schedule; a checkpoint has done some steps. A window that another training has left open is
        written."""
        last = PyProfCallback._last
        if last is not None and last[1] is not state:
            last[0].end()
        PyProfCallback._last = self._loop, state
        self._loop.begin(state.global_step)

    def on_step_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """End a step."""
        self._loop.step(state.global_step - 1)

    def on_train_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """Write a window that is still open."""
        self._loop.end()
        PyProfCallback._last = None
