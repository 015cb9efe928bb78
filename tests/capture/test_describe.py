# SPDX-License-Identifier: Apache-2.0
"""Arguments are described by shapes, dtypes, strides and scalars, whatever they are."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from pyprof.capture.instrument.arguments import Traced, arguments, key_of
from pyprof.core.marker import Listed
from pyprof.core.model import Other, Tensor

x = torch.zeros(2, 3)
F32 = Tensor((2, 3), "float32")


@pytest.mark.parametrize(
    ("value", "described"),
    [
        (x, F32),
        (x.half(), Tensor((2, 3), "float16")),
        (x.t(), Tensor((3, 2), "float32", (1, 3))),
        (x[0].expand(4, 3), Tensor((4, 3), "float32", (0, 1))),
        (torch.zeros(()), Tensor((), "float32")),
        (torch.zeros(2, 0).t(), Tensor((0, 2), "float32")),
        (torch.nn.Parameter(x), F32),
        (x.to_sparse(), F32._replace(stride=())),
        (torch.zeros(2, 3, device="meta"), F32),
        ([x, (x, 1)], Listed((F32, (F32, 1)))),
        ([], Listed()),
        ((1, 2), (1, 2)),
        (torch.Size([4]), (4,)),
        (None, None),
        (1, 1),
        (True, True),
        (1.0, 1.0),
        ("mean", "mean"),
        (torch.float16, Other("dtype", "float16")),
        (torch.device("cpu"), Other("device", "cpu")),
        (slice(1, None), Other("slice", "1::")),
        (slice(x.sum(), 2, 3), Other("slice", "Tensor:2:3")),
        (..., Other("ellipsis", "Ellipsis")),
        (1j, Other("complex", "1j")),
        (list(range(10_000)), Other("list", "10000 items")),
        (object(), Other("object")),
        ({"a": x}, Other("dict")),
    ],
    ids=lambda value: type(value).__name__,
)
def test_a_value_is_described(value: Any, described: Any) -> None:
    for args, kwargs, name in (((value,), {}, ""), ((), {"k": value}, "k")):
        ((found_name, found),) = arguments(key_of(args, kwargs))
        assert (found_name, once(found)) == (name, described)
        assert type(found) is type(described)
    around = arguments(key_of((x.t(), value, x.t(), 7), {"last": value}))
    assert [once(arg.value) for arg in around] == [Tensor((3, 2), "float32", (1, 3)), described,
                                                   Tensor((3, 2), "float32", (1, 3)), 7, described]  # fmt: skip


def once(value: Any) -> Any:
    """Without what says that a tensor is the memory of an earlier one (test_operands.py)."""
    if isinstance(value, Tensor):
        return value._replace(again=False)
    return type(value)(map(once, value)) if type(value) in (tuple, list, Listed) else value


@pytest.mark.parametrize("pair", [(1, True), (1, 1.0), (0, False), ((x,), [x.t()]), (x, x.half()), (None, 0)])
def test_what_differs_has_different_keys(pair: tuple[Any, Any]) -> None:
    first, second = (key_of((value,), {}) for value in pair)
    assert first != second


def test_a_stand_in_of_a_tracer_is_refused() -> None:
    from torch._subclasses.fake_tensor import FakeTensorMode

    with FakeTensorMode(), pytest.raises(Traced):
        key_of((torch.zeros(2),), {})


@pytest.mark.parametrize("count", [1, 2, 3, 4])
@pytest.mark.parametrize("keyword", [False, True])
def test_each_argument_has_its_own_strides(count: int, keyword: bool) -> None:
    for place in range(count):
        args = [x.t() if number == place else x for number in range(count)]
        found = arguments(key_of(args[:-1], {"last": args[-1]}) if keyword else key_of(args, {}))
        strides = [arg.value.stride for arg in found if isinstance(arg.value, Tensor)]
        assert strides == [(1, 3) if number == place else None for number in range(count)]
