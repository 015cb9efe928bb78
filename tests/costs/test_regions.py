# SPDX-License-Identifier: Apache-2.0
"""Kernels of operators inside another operator: a compiled region, a function of the user's, an operator of a library.

Each operator inside has its own FLOPs, as many times as it ran.
"""

from __future__ import annotations

import functools
import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from torch.autograd import forward_ad
from torch.utils.flop_counter import FlopCounterMode

import pyprof
from pyprof.core import netdict
from pyprof.costs.attribution.attribute import attribute
from pyprof.costs.modelflops import model_flops
from pyprof.parse import loader
from pyprof.parse.rows import rows
from tests import kineto
from tests.kineto import Event

PRODUCT = {
    "Input Dims": [[32, 64], [64, 128]],
    "Input type": ["float", "float"],
    "Input Strides": [[64, 1], [128, 1]],
}
FLOPS, BYTES = 2 * 32 * 64 * 128, 4 * (32 * 64 + 64 * 128 + 32 * 128)
OUTER = (
    "Torch-Compiled Region: 0/0", "MyLayer", "mylib::block", "## Call CompiledFxGraph abc ##", "CompiledFunction",
    "CompiledFunctionBackward", "MyLayerBackward", "",
)  # fmt: skip


def products(outer: str, count: int, kernels: int = 1) -> list[Event]:
    """`count` equal products, each of so many kernels, inside an operator."""
    events: list[Event] = []
    number = 0
    for place in range(count):
        start = 2_000 + 1_000 * place
        events.append(kineto.op("aten::mm", start, start + 900, **PRODUCT))
        for turn in range(kernels):
            number += 1
            begin = start + 100 + 100 * turn
            events.append(kineto.launch(begin, begin + 50, number))
            at = 1_000_000 + 10_000 * number
            events.append(kineto.kernel("sgemm_128x64_nn", at, at + 1_000 * number, number))
    if outer:
        events.append(kineto.op(outer, 1_000, 3_000 + 1_000 * count))
    return events


@pytest.mark.parametrize("outer", OUTER)
@pytest.mark.parametrize("count", [1, 2, 8, 64])
def test_equal_operators_inside_another_have_their_flops_each(outer: str, count: int, tmp_path: Path) -> None:
    path = kineto.write(tmp_path / "trace.json", products(outer, count))
    made = rows(loader.load(path))
    for found in (made, netdict.read(netdict.lines(made))):
        costs = attribute(found)
        assert costs.flops.values.tolist() == [FLOPS] * count
        assert costs.bytes.values.tolist() == [BYTES] * count
        assert model_flops(found, costs).values.tolist() == [FLOPS] * count
    kernels = pyprof.load(str(path)).kernels
    assert kernels["flops"].tolist() == [FLOPS] * count


@pytest.mark.parametrize("outer", OUTER)
def test_the_kernels_of_one_operator_share_its_flops(outer: str, tmp_path: Path) -> None:
    made = rows(loader.load(kineto.write(tmp_path / "trace.json", products(outer, 3, kernels=2))))
    flops = attribute(made).flops.values
    assert flops.reshape(3, 2).sum(axis=1).tolist() == [FLOPS] * 3
    assert (flops > 0).all()


def test_lines_of_an_earlier_net_dict_have_no_number_of_the_operator(tmp_path: Path) -> None:
    made = rows(loader.load(kineto.write(tmp_path / "trace.json", products("", 2))))
    lines = [line.partition(", 'launcher': ")[0] + "}" for line in netdict.lines(made)]
    found = netdict.read(lines)
    assert not found.launcher.mask().any()
    assert attribute(found).flops.values.tolist() == [FLOPS] * 2


def test_json_lines_have_the_number_of_the_operator(tmp_path: Path) -> None:
    made = rows(loader.load(kineto.write(tmp_path / "trace.json", products("MyLayer", 2, kernels=2))))
    numbers = [json.loads(line)["launcher"] for line in netdict.lines(made, "jsonl")]
    assert numbers[0] == numbers[1] != numbers[2] == numbers[3]
    assert np.array_equal(made.launcher.values, numbers)


@pytest.mark.long
def test_the_products_of_a_compiled_model_add_up_to_their_own_sizes(data: Path) -> None:
    """aten::mm 41.2 and aten::addmm 3.3 TFLOP by their own Input Dims, as the recordings' README derives."""
    kernels = pyprof.load(data / "kineto" / "mi300_flux_compiled").kernels
    flops = kernels.groupby("op", observed=True)["flops"].sum() / 1e12
    assert round(flops["mm"] + flops["linear"], 1) == 41.2
    assert round(flops["addmm"], 1) == 3.3
    assert not kernels["op"].str.contains("compiled", case=False).any()


def test_what_inductor_fuses_on_the_cpu_is_unknown(tmp_path: Path) -> None:
    """Its C++ runs in the time of the innermost compiled region, as no operator; the products inside have their own."""
    events = [
        kineto.op("Torch-Compiled Region: 0/0", 1_000, 9_000),
        kineto.op("CompiledFunction", 1_500, 8_500),
        kineto.op("aten::mm", 2_000, 3_000, **PRODUCT),
        kineto.op("Torch-Compiled Region: 1/0", 10_000, 19_000),  # of inference: no function of autograd inside
        kineto.op("aten::mm", 12_000, 13_000, **PRODUCT),
        kineto.op("CompiledFunctionBackward", 20_000, 29_000),
    ]
    made = rows(loader.load(kineto.write(tmp_path / "trace.json", events)))
    costs = attribute(made)
    by_name: dict[str, list[tuple[int, int]]] = {}
    for row in np.argsort(made.start):
        name = made.names[made.name[row]]
        by_name.setdefault(name, []).append((int(costs.flops.values[row]), int(costs.bytes.values[row])))
    assert by_name["Torch-Compiled Region: 0/0"] == [(0, 0)]
    assert by_name["CompiledFunction"] == by_name["CompiledFunctionBackward"] == [(-1, -1)]
    assert by_name["Torch-Compiled Region: 1/0"] == [(-1, -1)]
    assert by_name["aten::mm"] == [(FLOPS, BYTES)] * 2


def test_a_call_under_vmap_costs_what_its_operator_does(tmp_path: Path) -> None:
    """Three products of 4 by 4: 2·64 each; the call sees one of them."""
    with pyprof.profile(str(tmp_path / "net.sqlite")):
        torch.func.vmap(lambda x: x @ x)(torch.ones(3, 4, 4))
    pyprof.shutdown()
    kernels = pyprof.load(str(tmp_path / "net.sqlite")).kernels
    assert kernels.flops.sum() == 3 * 2 * 4 * 4 * 4


def _products(with_bias: bool) -> Callable[[torch.Tensor], torch.Tensor]:
    bias = torch.zeros(16) if with_bias else None
    return lambda x: torch.nn.functional.linear(x, torch.ones(16, 8), bias)


def _dual(function: Callable[[torch.Tensor], torch.Tensor], x: torch.Tensor) -> None:
    with forward_ad.dual_level():
        function(forward_ad.make_dual(x, x))


@pytest.mark.filterwarnings("ignore:.*torch.jit:DeprecationWarning")  # of torch's own decompositions
@pytest.mark.parametrize("with_bias", [False, True])
@pytest.mark.parametrize("dual", [False, True])
def test_forward_mode_derivatives_cost_what_ran(tmp_path: Path, with_bias: bool, dual: bool) -> None:
    """At least two products of 8 by 8 by 16, 2·1024 each, as torch's own counter has them; it has no additions."""
    x, function = torch.ones(8, 8), _products(with_bias)
    jvp = functools.partial(torch.func.jvp, function, (x,), (x,))
    products = functools.partial(_dual, function, x) if dual else jvp
    with FlopCounterMode(display=False) as counter:
        products()
    assert counter.get_total_flops() >= 2 * 2048
    assert 0 <= pyprof.estimate(products).flops.sum() - counter.get_total_flops() < 2048
    with pyprof.profile(str(tmp_path / "net.sqlite")):
        products()
    pyprof.shutdown()
    recorded = pyprof.load(str(tmp_path / "net.sqlite")).kernels.flops.sum()
    assert 0 <= recorded - counter.get_total_flops() < 2048


def test_a_layer_with_a_bias_under_vmap_costs_what_its_operators_do(tmp_path: Path) -> None:
    """Three vectors of 8 by 8 times 16; the addition of the bias is one FLOP per element of the result."""
    with pyprof.profile(str(tmp_path / "net.sqlite")):
        torch.func.vmap(_products(True))(torch.ones(3, 8))
    pyprof.shutdown()
    found = pyprof.load(str(tmp_path / "net.sqlite")).kernels.flops.sum()
    assert 0 <= found - 3 * 2 * 8 * 16 <= 3 * 2 * 16  # of the bias, in one addition or two
