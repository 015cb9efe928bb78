# SPDX-License-Identifier: Apache-2.0
"""Cost estimate of a function from its calls: `pyprof.estimate(fn, *args)` runs it once, on real or meta tensors.

One row per outermost call, in order. FLOPs count a fused multiply-add as 2; bytes count each operand once. The parts
of the backward come from the formulas, whether or not a backward runs. Unknown is <NA>, never 0.

* a call without a formula that ran operators with formulas costs their sum, basis `formula`
* any other call without a formula: FLOPs <NA>, the bytes of its distinct tensors and results, basis `default`
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any, NamedTuple

from pyprof.core.model import Arg, Cost, Tensor
from pyprof.core.registry import load_module
from pyprof.costs.cost import lookup, total
from pyprof.costs.eligible import eligible
from pyprof.costs.params import dtype, params

if TYPE_CHECKING:
    import pandas as pd

    from pyprof.capture.instrument.call_log import Noted, Notes

log = logging.getLogger(__name__)

PARTS = ("dgrad", "wgrad", "bgrad")
COLUMNS = (
    "mod", "op", "params", "dtype", "flops", "flops_dense", "bytes",
    *(f"{figure}_{part}" for part in PARTS for figure in ("flops", "bytes")),
    "tc_eligible", "basis", "module",
)  # fmt: skip


class Estimated(NamedTuple):
    """A call with its cost. `backward` is the sum of the parts that the formula has, None without any."""

    noted: Noted
    cost: Cost

    @property
    def backward(self) -> Cost | None:
        parts = [part for part in (self.cost.dgrad, self.cost.wgrad, self.cost.bgrad) if part is not None]
        return _sum(parts) if parts else None


def estimate(fn: Callable[..., object], /, *args: Any, **kwargs: Any) -> pd.DataFrame:
    """Run `fn` once and return the cost of each of its calls, in order.

    `fn` is a function or a module, the arguments are tensors with data, meta tensors or fake ones. Its exceptions
    propagate. Operators of a backward have no row. Raises CaptureError while a recording is open.
    """
    observe = load_module("pyprof.capture.observer")
    fn = observe.named(fn)
    with observe.observing() as notes:
        fn(*args, **kwargs)
    warn(notes)
    return frame(costs(notes.rows))


def warn(notes: Notes) -> None:
    """Log a warning about calls missing from the notes."""
    if notes.elsewhere:
        log.warning("%d calls on other threads are not in the estimate", notes.elsewhere)
    if notes.undescribed:
        log.warning("%d calls have no arguments: they could not be described", notes.undescribed)


def costs(rows: Iterable[Noted]) -> list[Estimated]:
    """Return each call with its cost, computed once per distinct one."""
    cache: dict[int, Estimated] = {}
    out = []
    for noted in rows:
        estimated = cache.get(id(noted))
        if estimated is None:
            estimated = cache[id(noted)] = Estimated(noted, cost_of(noted))
        out.append(estimated)
    return out


def cost_of(noted: Noted) -> Cost:
    """Return the cost of a call: from its formula, from its operators, or the default."""
    own = lookup(noted.call)
    if own.basis not in ("unknown", "default"):
        return own
    inner = [lookup(call) for call in noted.inner]
    if inner and all(cost.basis in ("formula", "view") for cost in inner):
        return _sum(inner)
    moved = [value.bytes if isinstance(value, Tensor) else None for value in noted.tensors]
    if not moved:
        return Cost(None, None, basis="unknown")
    return Cost(None, total(moved), basis="default")


def _sum(parts: list[Cost]) -> Cost:
    """Return the total cost of operators that ran one after the other; each reads and writes its own tensors."""
    flops, dense = total(cost.flops for cost in parts), total(cost.flops_dense for cost in parts)
    return Cost(flops, total(cost.bytes for cost in parts), dense=None if dense == flops else dense)


def _eligible(estimated: Estimated) -> str | None:
    """Return the tensor core eligibility of a call; if its cost is a sum, that of the first eligible operator."""
    if estimated.cost.basis in ("unknown", "default"):
        return None
    if lookup(estimated.noted.call).basis not in ("unknown", "default"):
        return eligible(estimated.noted.call)
    verdicts = [eligible(call) for call in estimated.noted.inner]
    return next((text for text in verdicts if text != "no"), "no")


def frame(calls: list[Estimated]) -> pd.DataFrame:
    """Return the data frame: nullable integers, texts; None where a text is unknown."""
    import pandas as pd

    rows = {id(estimated.noted): _cells(estimated) for estimated in calls}
    table = [rows[id(estimated.noted)] for estimated in calls]
    columns: dict[str, Any] = {}
    for name, cells in zip(COLUMNS, zip(*table) if table else [()] * len(COLUMNS)):
        figures = name.startswith(("flops", "bytes"))
        columns[name] = pd.array(list(cells), dtype="Int64") if figures else pd.Series(cells, dtype=object)
    return pd.DataFrame(columns)


def _cells(estimated: Estimated) -> tuple[Any, ...]:
    call, cost = estimated.noted.call, estimated.cost
    parts = [getattr(cost, part) for part in PARTS]
    figures = [figure for part in parts for figure in ((part.flops, part.bytes) if part else (None, None))]
    kinds = (value.dtype for value in estimated.noted.tensors if isinstance(value, Tensor))
    return (
        call.mod, call.op, params(call), dtype(call) or next(kinds, None),
        cost.flops, cost.flops_dense, cost.bytes, *figures,
        _eligible(estimated), cost.basis, estimated.noted.module,
    )  # fmt: skip


__all__ = ["COLUMNS", "Arg", "Estimated", "costs", "estimate", "frame"]
