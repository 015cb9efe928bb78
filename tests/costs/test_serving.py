# SPDX-License-Identifier: Apache-2.0
"""Costs of servers: attention over pages, mixtures of experts, what Inductor fuses.

Their work depends on lengths, weights and loops that are no arguments of the operator: the recording has them beside.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pandas as pd
import pytest

import pyprof
from pyprof.core.model import Arg, Call, Tensor
from pyprof.costs.cost import find, lookup
from pyprof.parse.tracejson.requests import ATTENTION
from tests import kineto
from tests.kineto import Event

STEP = "execute_6_context_2(sq3sk9sqsq5sqsk13)_generation_3(sq3sk12sqsq3sqsk12)"
# Two requests in prefill: 1 new token of 5, and 2 of 4. The one sees 5, the others 3 and 4. Three generate: 12 seen.
PAIRS = 5 + 3 + 4 + 12
HEADS, KV_HEADS, SIZE = 4, 2, 16


def tensors(*shapes: tuple[int, ...], types: str | tuple[str, ...] = "c10::BFloat16") -> dict[str, Any]:
    kinds = [types] * len(shapes) if isinstance(types, str) else list(types)
    strides = [[1] * len(shape) for shape in shapes]
    return {
        "Input Dims": [list(shape) for shape in shapes], "Input type": kinds, "Input Strides": strides,
        "Concrete Inputs": [""] * len(shapes),
    }  # fmt: skip


def launched(name: str, operator: Event, number: int = 1) -> list[Event]:
    start = round(operator["ts"] * 1000) + 10
    return [
        kineto.launch(start, start + 5, number),
        kineto.kernel(name, 50_000 * number, 50_000 * number + 1_000, number),
    ]


def kernels(path: Path, events: list[Event]) -> pd.DataFrame:
    return pyprof.load(str(kineto.write(path / "trace.json", events))).kernels


def attention(start: int = 1_000) -> list[Event]:
    shapes = (8, HEADS, SIZE), (8, KV_HEADS, SIZE), (8, KV_HEADS, SIZE), (8, HEADS, SIZE)
    one = kineto.op("vllm::unified_attention_with_output", start, start + 900, **tensors(*shapes))
    return [one, *launched("kernel_unified_attention_2d", one, start // 1_000)]


def test_the_annotation_of_a_step_gives_the_lengths(tmp_path: Path) -> None:
    found = kernels(tmp_path, [kineto.annotation(STEP, 500, 2_000), *attention()])
    assert found["flops"].tolist() == [4 * PAIRS * HEADS * SIZE]
    queries, cached = 6 * HEADS * SIZE, 21 * KV_HEADS * SIZE
    assert found["bytes"].tolist() == [2 * (2 * queries + 2 * cached)]
    assert found["basis"].tolist() == ["approximate"]  # a sliding window is not recorded


@pytest.mark.parametrize("around", [
    [], [kineto.annotation(STEP, 3_000, 4_000)], [kineto.annotation(STEP, 500, 2_000, tid=7)],
    [kineto.annotation("execute_6", 500, 2_000)],
    [kineto.annotation(STEP.replace("sqsk13", "sqsk3"), 500, 2_000)],  # fewer pairs than queries: no such requests
    [kineto.annotation(STEP.replace("(sq3sk9sqsq5", "(sq300sk900sqsq500"), 500, 2_000)],  # more than there are
], ids=["none", "later", "another thread", "no lengths", "impossible", "too many"])  # fmt: skip
def test_without_lengths_the_flops_are_unknown(around: list[Event], tmp_path: Path) -> None:
    found = kernels(tmp_path, [*around, *attention()])
    assert found["flops"].isna().all()


def test_each_step_has_its_own_lengths(tmp_path: Path) -> None:
    decode = "execute_3_context_0(sq0sk0sqsq0sqsk0)_generation_3(sq3sk12sqsq3sqsk12)"
    steps = [kineto.annotation(STEP, 500, 2_900), kineto.annotation(decode, 2_950, 4_500)]
    found = kernels(tmp_path, [*steps, *attention(1_000), *attention(2_000), *attention(3_000)])
    assert found["flops"].tolist() == [4 * pairs * HEADS * SIZE for pairs in (PAIRS, PAIRS, 12)]


def test_every_operator_with_lengths_has_a_formula_that_takes_them() -> None:
    for name in [*ATTENTION, "sglang_profiler::attention_paged_attention_ragged_17"]:
        known = find("aten", name)
        assert known is not None
        assert "lengths" in known[0].parameters


TOKENS, HIDDEN, EXPERTS, INNER, CHOSEN = 10, 8, 3, 6, 2
UP, DOWN = (EXPERTS, HIDDEN // 2, 2 * INNER), (EXPERTS, INNER // 2, HIDDEN)  # two values per byte


def mixture(*inside: Event) -> list[Event]:
    layer = kineto.op("vllm::moe_forward", 1_000, 9_000, **tensors((TOKENS, HIDDEN), (TOKENS, EXPERTS)))
    return [layer, *inside, *launched("_matmul_ogs_NNT_bf16xbf16xmxfp4_128x128x128x1_swiglu", layer, 1),
            *launched("_finalize_matmul_scatter_bf16", layer, 2)]  # fmt: skip


def choice(k: int = CHOSEN) -> Event:
    given = tensors((TOKENS, EXPERTS), (), types=("c10::BFloat16", "Scalar"))
    given["Concrete Inputs"] = ["", str(k)]
    return kineto.op("TopK", 2_000, 2_500, **given)


def weight(shape: tuple[int, ...], start: int) -> Event:
    return kineto.op("aten::view", start, start + 100, **tensors(shape, types="unsigned char"))


def test_what_runs_inside_a_mixture_of_experts_shows_its_weights(tmp_path: Path) -> None:
    found = kernels(tmp_path, mixture(choice(), weight(UP, 3_000), weight(DOWN, 4_000)))
    by_name = found.set_index("name")
    product = by_name.loc["_matmul_ogs_NNT_bf16xbf16xmxfp4_128x128x128x1_swiglu"]
    assert product["flops"] == 2 * TOKENS * CHOSEN * (HIDDEN * 2 * INNER + INNER * HIDDEN)
    weights = EXPERTS * (HIDDEN // 2 * 2 * INNER + INNER // 2 * HIDDEN)
    assert product["bytes"] == 2 * 2 * TOKENS * HIDDEN + 2 * TOKENS * EXPERTS + weights
    assert by_name.loc["_finalize_matmul_scatter_bf16"]["flops"] == 0
    assert product["basis"] == "approximate"  # which experts are read is data


@pytest.mark.parametrize("inside", [
    [choice(), weight(UP, 3_000)],
    [weight(UP, 3_000), weight(DOWN, 4_000)],
    [choice(), weight(UP, 3_000), weight((EXPERTS, 5, HIDDEN), 4_000)],
    [choice(), weight((4, *UP[1:]), 3_000), weight((4, *DOWN[1:]), 4_000)],
    [choice(), choice(1), weight(UP, 3_000), weight(DOWN, 4_000)],
    [choice(), weight(UP, 3_000), weight(DOWN, 9_500)],
], ids=["one weight", "no k", "sizes that do not fit", "other experts", "two k", "one outside"])  # fmt: skip
def test_a_mixture_that_shows_less_is_unknown(inside: list[Event], tmp_path: Path) -> None:
    assert kernels(tmp_path, mixture(*inside))["flops"].isna().any()


def test_experts_of_another_rank_get_an_unknown_number_of_tokens() -> None:
    half = [Arg("", Tensor(shape, "float16")) for shape in ((4, 8), (3, 12, 8), (3, 8, 6), (4, 2))]
    ids, places = Arg("", Tensor((4, 2), "int32")), Arg("", Tensor((6,), "int32"))
    call = Call("aten", "vllm::outplace_fused_experts", (*half, ids))
    assert lookup(call).flops == 2 * 4 * 2 * 8 * (12 + 6)
    assert lookup(call._replace(args=(*call.args, Arg("", "silu"), places))).flops is None


def test_what_inductor_fuses_counts_by_its_loops(tmp_path: Path) -> None:
    given = tensors((64, 32), (64, 32), (), types=("c10::BFloat16", "c10::BFloat16", "Scalar"))
    given["Concrete Inputs"] = ["", "", "2048"]
    one = kineto.op("triton_poi_fused_add_addmm_silu_view_7", 1_000, 2_000, **given)
    found = kernels(tmp_path, [one, *launched("triton_poi_fused_add_addmm_silu_view_7", one)])
    assert found["flops"].tolist() == [(1 + 2) * 2048]  # add, silu; the product is where the bias comes from
    assert found["bytes"].tolist() == [2 * 2 * 64 * 32]
    assert found["basis"].tolist() == ["approximate"]


def test_flops_of_servers_by_hand(recorded) -> None:
    """From the raw events: attention of 32 requests that see 32,785 tokens, 32 heads of 128, in each of 36 layers; a
    mixture of 32 experts, 4 for each of 8,192 tokens, of 3,072 to 5,888 and 2,944 to 3,072, in each of 24."""
    sglang = recorded("kineto/mi300_sglang_decode").kernels
    attends = sglang[sglang["op"].str.contains("paged_attention_ragged")]
    assert attends["flops"].sum() == 36 * 4 * 32 * 128 * 32785
    vllm = recorded("kineto/mi300_vllm_prefilldecode_piecewise").kernels
    experts = vllm[vllm["op"] == "moe_forward"]
    assert experts["flops"].sum() == 24 * 2 * 8192 * 4 * (3072 * 5888 + 2944 * 3072)
    pairs = 7671310 - (7475785 - 8155) // 2 + 34489
    assert vllm[vllm["op"].str.contains("unified_attention")]["flops"].sum() == 24 * 4 * 64 * 64 * pairs
    for kernels in (sglang, vllm):
        known = kernels["flops"].notna() & kernels["bytes"].notna()
        assert kernels["duration_ns"][known].sum() > 0.99 * kernels["duration_ns"].sum()
