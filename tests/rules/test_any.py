# SPDX-License-Identifier: Apache-2.0
"""Whatever a recording holds, every rule finds something, is silent, or says what it needs; nobody saves more than all
of the time."""

from __future__ import annotations

import hypothesis.strategies as st
import pytest
from hypothesis import given

from pyprof.facts.build import build, of_trace
from pyprof.facts.steps.aggregation import aggregate, aggregations
from pyprof.facts.steps.source import Source
from pyprof.parse import loader
from pyprof.rules import RULES, Outcome
from pyprof.rules.context import Run
from pyprof.rules.evaluation import evaluate
from pyprof.store.files import Store
from tests.build import WRITERS, examples, recording
from tests.rules.small import A100, V100, Small, opened

NAMES = [
    "volta_sgemm_128x64_tn", "ampere_bf16_s16816gemm_bf16_128x128_ldg8_f2f_stages_32x5_tn",
    "ncclDevKernel_AllReduce_Sum",
    "void at::native::vectorized_elementwise_kernel<4, at::native::CUDAFunctor_add<float>>(int)",
    "triton_poi_fused_add",
    "nchwToNhwcKernel", "volta_scudnn_winograd_128x128_ldg1", "a kernel that nobody knows", "embedding_backward_kernel",
    "void direct_copy_kernel_cuda<LoadWithCast<1>>", "gemv2T_kernel", "",
]  # fmt: skip
TYPES = [
    "linear", "conv2d", "adam.step", "sgd.zero_grad", "gelu", "half", "item", "unassociated", "", "all_reduce",
    "scaled_dot_product_attention",
]  # fmt: skip
PARAMS = [None, "", "M=1,N=8,K=7,float16", "N=8,C=3,K=64,R=3,S=3,groups=3", "M=0,N=0", "[2,3]float32"]
DTYPES = [None, "float32", "float16", "bfloat16", "float64", "int64", "float8_e4m3fn", "nonsense"]
CALLS = [
    "cudaStreamSynchronize_v3020",
    "cudaMalloc_v3020",
    "cudaFree_v3020",
    "cudaMallocAsync_v11020",
    "another",
]
FACTS = {
    "autocast.cuda.seen": ["yes", "no"], "matmul.tf32": ["yes", "no", "?"], "cudnn.tf32": ["yes", "no"],
    "cudnn.benchmark": ["yes", "no"], "loader.0.num_workers": ["0", "4", ""], "loader.0.pin_memory": ["yes", "no"],
    "cpu.usable": ["1", "8", "many"], "optimizer.0.parameter_tensors": ["0", "12", "-"], "optimizer.0.fused": ["yes"],
    "gpu.0.memory_bytes": ["0", "16000000000", "x"], "gpu.0.peak_allocated_bytes": ["0", "1000000", "y"],
    "overhead.sites_ns": ["0", "10000000", "z"], "compile.regions": ["0", "3"], "format": ["nsys", "capture"],
    "convolution.inputs.contiguous": ["5", "0", "no"], "distributed.world_size": ["2", "1", "?"],
    "switch.CUDA_LAUNCH_BLOCKING": ["1"], "anomaly_mode": ["yes"],
}  # fmt: skip
GPUS = [V100, A100, (None, None, None, None), ("Radeon of nobody", 12, "", None), ("A GPU", 0, "9.9", 0)]
number = st.integers
some = st.sampled_from


@st.composite
def recordings(draw: st.DrawFn) -> Small:
    length = 100_000
    facts = {name: draw(some(texts)) for name, texts in FACTS.items() if draw(st.booleans())}
    made = Small(
        draw(some([0, 1, 2, 5])),
        length,
        draw(some(GPUS)),
        facts,
        draw(some([{}, {"ops after the first": 3}])),
    )
    whole = max(made.steps, 1) * length
    ops = [
        made.op(
            draw(some(TYPES)), start := draw(number(0, whole)), start + draw(number(0, length)),
            direction=draw(number(0, 2)), phase=draw(number(0, 4)), params=draw(some(PARAMS)), dtype=draw(some(DTYPES)),
            eligible=draw(st.booleans()), line=draw(number(1, 3)),
        )
        for _ in range(draw(number(1, 6)))
    ]  # fmt: skip
    gpu = draw(st.booleans())
    for _ in range(draw(number(0, 12))):
        start, time, op = draw(number(0, whole)), draw(number(0, length)), draw(some(ops))
        kind = draw(some(["kernel", "copy", "set", "api", "wait"])) if gpu else draw(some(["cpu", "wait"]))
        for i in range(draw(some([1, 1, 4]))):
            at = start + i * draw(some([time, time // 2]))
            if kind == "kernel":
                made.kernel(
                    draw(some(NAMES)), at, time, op, launch=draw(some([None, max(at - 500, 0)])),
                    linked=draw(st.booleans()), tc=draw(number(0, 2)),
                    flops=draw(some([None, 0, 10**9])), size=draw(some([None, 0, 10**6])),
                    blocks=draw(some([0, 1, 90, 4000])), threads=draw(some([0, 32, 1024])), stream=draw(number(7, 8)),
                    registers=draw(some([None, 0, 255])), shared=draw(some([0, 64_000])), device=draw(number(0, 1)),
                    graph=draw(some([None, 3])),
                )  # fmt: skip
            elif kind == "copy":
                made.copy(
                    draw(some([None, 0, 1, 2, 3])),
                    draw(some([None, 0, 1, 2])),
                    draw(some([0, 4, 10**6])),
                    at,
                    time,
                    op,
                )
            elif kind == "set":
                made.memset(10, at, time, op)
            elif kind == "api":
                made.api(draw(some(CALLS)), at, time, draw(some([None, op])))
            elif kind == "cpu":
                made.cpu(draw(some(NAMES)), at, time, op)
            else:
                made.wait(at, time)
    if not any(made._events):
        made.op("linear", 0, 5)
    return made


def checked(source: Source) -> list[Outcome]:
    """Every rule's verdict; no saving beyond the steps, which last until what they launched has
    ended."""
    found = evaluate(source)
    assert {each.rule.id for each in found} == set(RULES)
    wall = Run(source).wall
    for each in found:
        assert each.finding is None or each.needs is None
        if each.finding is not None and each.finding.saving is not None:
            assert 0 <= each.finding.saving <= wall, each
    ranks = [0 if each.finding else 1 if each.needs else 2 for each in found]
    assert ranks == sorted(ranks)
    bounds = {
        "R16",
        "R26",
        "R27",
        "R36",
        "R44",
        "R45",
        "R46",
        "R54",
    }  # of peaks, or of work that may be needed
    faults = {"R30", "R34", "R45", "R52", "R55", "R56"}  # before bounds also without a saving
    savings = [
        (
            (1 if each.rule.id in faults else 3) if each.finding.saving is None else 2 * (each.rule.id in bounds),
            -(each.finding.saving or 0),
        )
        for each in found
        if each.finding
    ]
    assert savings == sorted(savings), "those without a saving come last, but for faults"
    return found


@examples(8)
@given(recordings(), st.data())
def test_every_rule_answers_on_any_database(made, data):
    with opened(made) as database:
        one = aggregations(database)[0]
        if data.draw(st.booleans()):
            last = data.draw(st.integers(one.first, one.last))
            one = aggregate(database, data.draw(st.integers(one.first, last)), last)
        checked(Source(database, one, data.draw(some([None, 0]))))


PROGRAM = """
linear, seq = 1
    > 40 volta_sgemm
relu, seq = 2
    > 60 elementwise_kernel
    > 70 stream=9 reduce_kernel
thread 2
autograd::engine::evaluate_function: AddmmBackward0, seq = 1
    > 30 correlation=none volta_sgemm
thread 1 process 200
linear, seq = 1
    > 20 device=1 volta_sgemm
"""


@pytest.mark.parametrize("format_", WRITERS)
def test_every_rule_answers_on_any_format(format_, tmp_path):
    trace = loader.load(WRITERS[format_](tmp_path / "x.sqlite", recording(PROGRAM * 3)))
    build(of_trace(trace), str(tmp_path / "x_dldb.sqlite"))
    with Store(tmp_path / "x_dldb.sqlite") as database:
        for worker in (None, 1):
            checked(Source(database, aggregations(database)[0], worker))
