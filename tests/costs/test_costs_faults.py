# SPDX-License-Identifier: Apache-2.0
"""Planted faults: would a formula that is wrong be noticed? The rows of `cost_cases`, derived apart from the code,
hold. Then every registered formula is planted wrong in turn (twice the FLOPs, twice the bytes), sizes are swapped and
widths are wrong, and the rows, or the worked examples in the formula's docstring, must notice. `pytest -s` counts them.
"""

from __future__ import annotations

import doctest
import inspect
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import ModuleType
from typing import Any

import pytest

from pyprof.core.model import DTYPE_BITS, Arg, Call, Cost, Tensor, Value
from pyprof.costs import cost
from pyprof.costs.cost import Formula, find, formulas, lookup
from tests.costs import cost_cases, cost_cases_backward, cost_cases_kernels, cost_cases_layers
from tests.costs.cost_cases import Row

Change = Callable[[Cost], Cost]


def generators(module: ModuleType) -> dict[str, Callable[[], Iterator[Any]]]:
    return {
        name: made
        for name, made in vars(module).items()
        if inspect.isgeneratorfunction(made) and made.__module__ == module.__name__
    }


GENERATORS = generators(cost_cases) | generators(cost_cases_kernels) | generators(cost_cases_layers)

GRADIENTS = generators(cost_cases_backward)


@pytest.mark.parametrize("family", GENERATORS)
def test_costs_are_those_derived_by_hand(family: str) -> None:
    for call, flops, size in GENERATORS[family]():
        found = lookup(call)
        assert (found.flops, found.bytes) == (flops, size), call


@pytest.mark.parametrize("family", GRADIENTS)
def test_parts_of_the_backward_are_those_derived_by_hand(family: str) -> None:
    for call, part, flops, size in GRADIENTS[family]():
        found = getattr(lookup(call), part)
        assert found is not None, (call, part)
        assert found.flops == flops, (call, part)
        assert size is None or found.bytes == size, (call, part)


def wrong(formula: Formula, change: Change) -> Formula:
    function = formula.function

    def changed(*args: Value, **keywords: Value) -> Cost:
        return change(function(*args, **keywords))

    return formula._replace(function=changed)


@pytest.fixture(scope="module")
def rows() -> dict[Formula, list[Row]]:
    """The rows by the formula that answers them."""
    by_formula: dict[Formula, list[Row]] = {}
    for made in GENERATORS.values():
        for row in made():
            found = find(row[0].mod, row[0].op)
            assert found is not None, row
            by_formula.setdefault(found[0], []).append(row)
    return by_formula


@contextmanager
def planted(formula: Formula, change: Change, patch: pytest.MonkeyPatch) -> Iterator[None]:
    """In this block the registry answers with the wrong formula."""
    instead = wrong(formula, change)
    whole = find.__wrapped__

    def found(mod: str, op: str) -> tuple[Formula, bool] | None:
        right = whole(mod, op)
        return (instead, right[1]) if right is not None and right[0] == formula else right

    with patch.context() as here:
        here.setattr(cost, "find", found)
        here.setattr(cost, "_lookup", cost._lookup.__wrapped__)
        yield


def noticed_by_rows(formula: Formula, change: Change, mine: list[Row], patch: pytest.MonkeyPatch) -> bool:
    """Whether a row of the formula fails while it is wrong."""
    with planted(formula, change, patch):
        return any((now.flops, now.bytes) != (flops, size) for call, flops, size in mine for now in [lookup(call)])


def noticed_by_examples(formula: Formula, change: Change) -> bool:
    """Whether an example in the docstring of the formula fails while it is wrong."""
    function = formula.function
    text = inspect.getdoc(function) or ""
    if ">>>" not in text:
        return False
    names = vars(sys.modules[function.__module__]) | {function.__name__: wrong(formula, change).function}
    example = doctest.DocTestParser().get_doctest(text, names, function.__name__, None, 0)
    runner = doctest.DocTestRunner(verbose=False)
    return runner.run(example, out=lambda _: None).failed > 0


def double_flops(right: Cost) -> Cost:
    return right._replace(flops=right.flops and 2 * right.flops)


def double_bytes(right: Cost) -> Cost:
    return right._replace(bytes=right.bytes and 2 * right.bytes)


def some_flops(right: Cost) -> Cost:
    """What moves data only has no FLOPs to double; unknown ones are taken for known."""
    return right._replace(flops=(right.flops or 0) + 1)


def some_bytes(right: Cost) -> Cost:
    return right._replace(bytes=(right.bytes or 0) + 1)


@pytest.mark.long
@pytest.mark.parametrize(("change", "or_else"), [(double_flops, some_flops), (double_bytes, some_bytes)])
def test_every_formula_that_is_wrong_by_two_is_noticed(
    change: Change, or_else: Change, rows: dict[Formula, list[Row]], monkeypatch: pytest.MonkeyPatch
) -> None:
    names: dict[Formula, list[str]] = {}
    for name, formula in formulas().items():
        names.setdefault(formula, []).append(name)
    by = {"rows": 0, "examples": 0}
    survived = []
    for formula, its in names.items():
        for fault in (change, or_else):
            if noticed_by_rows(formula, fault, rows.get(formula, []), monkeypatch):
                by["rows"] += 1
                break
            if noticed_by_examples(formula, fault):
                by["examples"] += 1
                break
        else:
            survived.append("|".join(its))
    print(change.__name__, len(names), by)
    assert not survived, " ".join(survived)


def test_a_gradient_that_is_wrong_by_two_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    """dgrad, wgrad and bgrad of every formula that has a row."""
    by_formula: dict[tuple[Formula, str], list[tuple[Call, int]]] = {}
    for made in GRADIENTS.values():
        for call, part, flops, _ in made():
            found = find(call.mod, call.op)
            assert found is not None
            by_formula.setdefault((found[0], part), []).append((call, flops))
    for (formula, part), mine in by_formula.items():

        def fault(right: Cost, part: str = part) -> Cost:
            one = getattr(right, part)
            return right if one is None else right._replace(**{part: one._replace(flops=2 * one.flops + 1)})

        with planted(formula, fault, monkeypatch):
            assert any(getattr(lookup(call), part).flops != flops for call, flops in mine), (formula, part)
    print("parts", len(by_formula), "of", len({formula for formula, _ in by_formula}), "formulas")
    assert len({formula for formula, _ in by_formula}) > 150


def test_a_wrong_width_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each width of the table, doubled, changes what a copy of that dtype moves; the widths themselves are torch's."""
    import torch

    for dtype, bits in list(DTYPE_BITS.items()):
        real = getattr(torch, dtype, None)
        packed = bits < 8  # torch holds these in bytes until they are packed
        assert real is None or packed or real.itemsize * 8 == bits, dtype
        call = Call("aten", "aten::clone", (Arg("", Tensor((16,), dtype)),))
        assert lookup(call).bytes == 2 * 2 * bits
        with monkeypatch.context() as here:
            here.setitem(DTYPE_BITS, dtype, 2 * bits)
            here.setattr(cost, "_lookup", cost._lookup.__wrapped__)
            assert lookup(call).bytes == 4 * 2 * bits


def swapped(call: Call, axes: tuple[int, int]) -> Call:
    """The same sizes, two of them exchanged, in the first tensor alone."""
    first, *others = call.args
    tensor = first.value
    assert isinstance(tensor, Tensor)
    shape = list(tensor.shape)
    shape[axes[0]], shape[axes[1]] = shape[axes[1]], shape[axes[0]]
    return call._replace(args=(Arg(first.name, tensor._replace(shape=tuple(shape))), *others))


@pytest.mark.parametrize("family", ["products", "convolutions", "attention"])
def test_a_swapped_dimension_is_noticed(family: str) -> None:
    """M with K, H with C, S with D of the first operand: the product is another one or none at all."""
    seen = 0
    for call, flops, size in GENERATORS[family]():
        first = call.args[0].value
        if not isinstance(first, Tensor) or len(first.shape) < 2 or first.shape[-1] == first.shape[-2]:
            continue
        if call.op.endswith(("_backward", "_inplace", "_out")):  # the first is as large as the output
            continue
        found = lookup(swapped(call, (-1, -2)))
        assert (found.flops, found.bytes) != (flops, size), call
        seen += 1
    assert seen > (8 if family != "convolutions" else 0)


def test_a_fault_in_one_place_of_a_product_is_noticed(
    rows: dict[Formula, list[Row]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """2·M·N·M instead of 2·M·N·K, bytes without the second operand, the batch left out."""
    mm = find("aten", "aten::mm")
    bmm = find("aten", "aten::bmm")
    assert mm is not None
    assert bmm is not None
    faults: list[tuple[Formula, Change]] = [
        (mm[0], lambda right: right._replace(flops=2 * 2 * 5 * 2)),
        (mm[0], lambda right: right._replace(bytes=4 * (6 + 10))),
        (bmm[0], lambda right: right._replace(flops=right.flops and right.flops // 4)),
    ]
    for formula, fault in faults:
        assert noticed_by_rows(formula, fault, rows[formula], monkeypatch)
    assert not noticed_by_rows(mm[0], lambda right: right, rows[mm[0]], monkeypatch)
