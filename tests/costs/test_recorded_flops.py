# SPDX-License-Identifier: Apache-2.0
"""FLOPs that another tool recorded with an event count where no formula gives any."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pandas as pd
import pytest

import pyprof
from pyprof.core.marker import CallMarker, decode, encode
from pyprof.core.model import Arg, Call, Tensor
from pyprof.costs.cost import LARGEST, lookup
from pyprof.export.chrome_names import of_event
from tests import kineto
from tests.kineto import Event

RECORDED = 29_595_009_024


def inputs(*shapes: tuple[int, ...], flops: Any = RECORDED) -> dict[str, Any]:
    return {
        "Input Dims": [list(shape) for shape in shapes], "Input type": ["c10::Half"] * len(shapes), "flops": flops,
    }  # fmt: skip


def kernels(path: Path, name: str, args: dict[str, Any], *launched: str) -> pd.DataFrame:
    """Return the rows of an operator that launched kernels of 2, 3, ... us; without any, of its event."""
    return pyprof.load(str(kineto.write(path / "trace.json", events(name, args, *launched)))).kernels


def events(name: str, args: dict[str, Any], *launched: str) -> list[Event]:
    found = [kineto.op(name, 1_000, 9_000, **args)]
    for number, kernel in enumerate(launched, 1):
        start = 100_000 * number
        found.append(kineto.launch(1_000 + 100 * number, 1_050 + 100 * number, number))
        found.append(kineto.kernel(kernel, start, start + 1_000 + 1_000 * number, number))
    return found


IMAGE, FILTERS = (32, 64, 56, 56), (64, 64, 3, 3)
BYTES = 2 * (32 * 64 * 56 * 56 + 64 * 64 * 3 * 3)  # of the operands; the result's size is unknown


@pytest.mark.parametrize("name", ["aten::conv2d", "aten::convolution"])
@pytest.mark.parametrize("launched", [(), ("implicit_convolve_sgemm",)])
def test_a_convolution_without_its_stride(tmp_path: Path, name: str, launched: tuple[str, ...]) -> None:
    found = kernels(tmp_path, name, inputs(IMAGE, FILTERS), *launched)
    assert found["flops"].tolist() == [RECORDED]
    assert found["bytes"].tolist() == [BYTES]
    assert found["basis"].tolist() == ["recorded"]


def test_operators_of_other_libraries(tmp_path: Path) -> None:
    found = kernels(tmp_path, "mine::stage", inputs((8, 16), (16, 4), flops=77), "stage_kernel")
    assert found[["flops", "bytes", "basis"]].values.tolist() == [[77, 2 * (8 * 16 + 16 * 4), "recorded"]]


def test_an_event_whose_inputs_are_not_recorded(tmp_path: Path) -> None:
    found = kernels(tmp_path, "mine::stage", {"flops": 77}, "stage_kernel")
    assert found["flops"].tolist() == [77]
    assert found["bytes"].isna().all()


def test_a_formula_comes_first(tmp_path: Path) -> None:
    found = kernels(tmp_path, "aten::mm", inputs((8, 16), (16, 4), flops=77), "gemm")
    assert found[["flops", "basis"]].values.tolist() == [[2 * 8 * 16 * 4, "formula"]]


@pytest.mark.parametrize("flops", [None, 0, -5, "many", [3], 1e30, LARGEST + 1])
def test_what_is_no_count_stays_unknown(tmp_path: Path, flops: Any) -> None:
    """torch gives 0 to operators that it does not count."""
    found = kernels(tmp_path, "mine::stage", inputs((8, 16), flops=flops), "stage_kernel")
    assert found["flops"].isna().all()
    assert found["basis"].tolist() == ["default"]


def test_the_kernels_of_an_operator_add_up_to_it(tmp_path: Path) -> None:
    one = kernels(tmp_path, "mine::stage", inputs((8, 16), flops=77), "fill", "stage_kernel")
    assert one["flops"].tolist() == [0, 77]  # the longest carries all
    assert one["basis"].tolist() == ["recorded", "recorded"]
    two = kernels(tmp_path, "aten::conv2d", inputs(IMAGE, FILTERS, flops=50), *["implicit_convolve_sgemm"] * 2)
    assert two["flops"].tolist() == [20, 30]  # of 2 and 3 us
    assert two["bytes"].sum() == BYTES


def test_sparse_operands_keep_theirs_unknown() -> None:
    """torch counts all elements, from the shapes."""
    sparse = Tensor((8, 16), "float32", ())
    call = Call("aten", "mine::product", (Arg("", sparse),), 77)
    assert lookup(call).basis == "unknown"


def test_the_ledger_names_them_and_not_the_bytes(tmp_path: Path) -> None:
    prof = pyprof.load(str(kineto.write(tmp_path / "a.json", events("mine::stage", inputs((8, 16)), "stage_kernel"))))
    table = prof.report("coverage").set_index(["line", "part"])["time"]
    assert table["FLOPs", "recorded"] == table["bytes", "default"] == 2_000


def test_net_dict_and_exports_keep_them() -> None:
    call = Call("aten", "mine::stage", (Arg("", Tensor((8, 16), "float16")),), 77)
    marker = decode(encode(call))
    assert isinstance(marker, CallMarker)
    assert marker.call == call
    assert ',"flops":77' in of_event("mine::stage", encode(call)).args
    assert "flops" not in encode(call._replace(flops=None))
