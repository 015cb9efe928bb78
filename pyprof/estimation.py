# SPDX-License-Identifier: Apache-2.0
"""What a function costs by its calls alone: `pyprof.estimate(fn, *args)` runs it once, on real or meta tensors.

One row per outermost call, in order. FLOPs count a fused multiply-add as 2; bytes count each operand once. The parts
of the backward come from the formulas, whether or not a backward runs. Unknown is <NA>, never 0.

* a call without a formula that ran operators with formulas costs their sum, basis `formula`
* any other call without a formula: FLOPs <NA>, the bytes of its distinct tensors and results, basis `default`
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any, NamedTuple

from pyprof.model import Arg, Cost, Tensor
from pyprof.prof.cost import lookup, total
from pyprof.prof.eligible import eligible
from pyprof.prof.params import dtype, params
from pyprof.registry import load_module

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
        found = [part for part in (self.cost.dgrad, self.cost.wgrad, self.cost.bgrad) if part is not None]
        return _sum(found) if found else None


def estimate(fn: Callable[..., object], /, *args: Any, **kwargs: Any) -> pd.DataFrame:
    """Run `fn` once and return what each call of it costs, in order.

    `fn` is a function or a module, the arguments are tensors with data, meta tensors or fake ones. Its errors are its
    own. What a backward runs is no row. Raises CaptureError while a recording is open.
    """
    observe = load_module("pyprof.capture.observer")
    fn = observe.named(fn)
    with observe.observing() as notes:
        fn(*args, **kwargs)
    warn(notes)
    return frame(costs(notes.rows))


def warn(notes: Notes) -> None:
    """Say what is not in the notes."""
    if notes.elsewhere:
        log.warning("%d calls of other threads are not in the estimate", notes.elsewhere)
    if notes.undescribed:
        log.warning("%d calls stand without arguments: these could not be described", notes.undescribed)


def costs(rows: Iterable[Noted]) -> list[Estimated]:
    """Each call with its cost, worked out once per distinct one."""
    known: dict[int, Estimated] = {}
    out = []
    for noted in rows:
        found = known.get(id(noted))
        if found is None:
            found = known[id(noted)] = Estimated(noted, cost_of(noted))
        out.append(found)
    return out


def cost_of(noted: Noted) -> Cost:
    """The cost of a call: its formula, that of the operators it ran, or the default."""
    found = lookup(noted.call)
    if found.basis not in ("unknown", "default"):
        return found
    inner = [lookup(call) for call in noted.inner]
    if inner and all(cost.basis in ("formula", "view") for cost in inner):
        return _sum(inner)
    moved = [value.bytes if isinstance(value, Tensor) else None for value in noted.tensors]
    if not moved:
        return Cost(None, None, basis="unknown")
    return Cost(None, total(moved), basis="default")


def _sum(found: list[Cost]) -> Cost:
    """Costs of operators that ran one after the other; each reads and writes its own tensors."""
    flops, dense = total(cost.flops for cost in found), total(cost.flops_dense for cost in found)
    return Cost(flops, total(cost.bytes for cost in found), dense=None if dense == flops else dense)


def _eligible(each: Estimated) -> str | None:
    """Of a call whose cost is the sum of its operators: what the first of them is that tensor cores can do."""
    if each.cost.basis in ("unknown", "default"):
        return None
    if lookup(each.noted.call).basis not in ("unknown", "default"):
        return eligible(each.noted.call)
    found = [eligible(call) for call in each.noted.inner]
    return next((text for text in found if text != "no"), "no")


def frame(found: list[Estimated]) -> pd.DataFrame:
    """The data frame: nullable integers, texts; None where a text is unknown."""
    import pandas as pd

    rows = {id(each.noted): _cells(each) for each in found}
    table = [rows[id(each.noted)] for each in found]
    columns: dict[str, Any] = {}
    for name, cells in zip(COLUMNS, zip(*table) if table else [()] * len(COLUMNS)):
        figures = name.startswith(("flops", "bytes"))
        columns[name] = pd.array(list(cells), dtype="Int64") if figures else pd.Series(cells, dtype=object)
    return pd.DataFrame(columns)


def _cells(each: Estimated) -> tuple[Any, ...]:
    call, cost = each.noted.call, each.cost
    parts = [getattr(cost, part) for part in PARTS]
    figures = [figure for part in parts for figure in ((part.flops, part.bytes) if part else (None, None))]
    kinds = (value.dtype for value in each.noted.tensors if isinstance(value, Tensor))
    return (
        call.mod, call.op, params(call), dtype(call) or next(kinds, None),
        cost.flops, cost.flops_dense, cost.bytes, *figures,
        _eligible(each), cost.basis, each.noted.module,
    )  # fmt: skip


__all__ = ["COLUMNS", "Arg", "Estimated", "costs", "estimate", "frame"]
