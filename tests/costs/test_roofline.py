# SPDX-License-Identifier: Apache-2.0
"""Roofline and tensor-core verdicts, with figures worked out by hand from data sheets."""

from __future__ import annotations

import contextlib
import csv
import io
import sqlite3
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from pyprof import metrics, profiles
from pyprof.core.errors import UsageError
from pyprof.core.model import Arg, Call, Device, Tensor
from pyprof.costs.attribution.attribute import NOT_APPLICABLE, NOT_USED, TC_UNKNOWN, USED
from pyprof.costs.columns import COLUMNS, View
from pyprof.costs.eligible import normal
from pyprof.costs.hardware import gpus, machine
from pyprof.costs.hardware.machine import Hardware
from pyprof.costs.hardware.roofline import Case, math
from pyprof.costs.hardware.utilisation import per_group
from pyprof.costs.tensor_core_reasons import verdict
from pyprof.parse import loader
from pyprof.parse.rows import rows
from pyprof.prof.table import frame, lines, select
from pyprof.store.write.peaks import Peaks
from tests import build
from tests.build import call, recording
from tests.cli import prof as main

HALF_GEMM = "ampere_fp16_s16816gemm_fp16_128x64_ldg8_f2f_stages_64x4_tn"
TF32_GEMM = "void cutlass::Kernel<cutlass_80_tensorop_s1688gemm_256x64_16x4_nn_align4>"
LANES_GEMM = "ampere_sgemm_32x128_nt"


def half(*shape: int) -> Tensor:
    return Tensor(shape, "float16")


def single(*shape: int) -> Tensor:
    return Tensor(shape, "float32")


TRAINING = f"""
    {call("torch.nn.functional.linear", half(64, 1024), half(4096, 1024))}
        aten::linear, seq = 1
            > 11632 {HALF_GEMM}
    {call("torch.mm", Tensor((4096, 4096), "bfloat16"), Tensor((4096, 4096), "bfloat16"))}
        aten::mm, seq = 2
            > 881019 sm90_xmma_gemm_bf16bf16_bf16f32_f32_tn_n_tilesize128x128x64_warpgroupsize1x1x1
            > 3 splitKreduce_kernel
    {call("torch.relu", (1024, 1024))}
        aten::relu, seq = 3
            > 5395 vectorized_elementwise_kernel
    {call("torch.mm", (512, 512), (512, 512))}
        aten::mm, seq = 4
            > 20000 {TF32_GEMM}
    {call("torch.mm", (2048, 2048), (2048, 2048))}
        aten::mm, seq = 5
            > 1000000 {LANES_GEMM}
    > 7 nobody_knows
"""


@pytest.fixture
def view(tmp_path: Path) -> View:
    trace = loader.load(build.write_nsys(tmp_path / "net.sqlite", recording(TRAINING)))
    return View(rows(trace), machine.named("A100 40GB"))


def table(view: View, columns: str) -> list[list[str]]:
    text = "\n".join(lines(view, select(columns), "csv"))
    return list(csv.reader(io.StringIO(text)))[1:]


def test_figures_worked_out_by_hand(view):
    """A100: 312 TFLOP/s in 16 bit, 156 in TF32, 19.5 in fp32, 1555 GB/s.

    linear: 2·64·4096·1024 = 536870912 FLOPs, (64·1024 + 4096·1024 + 64·4096)·2 = 9043968 B: 1720.7 ns, 5816.1 ns.
    mm bf16: 2·4096³ = 137438953472 FLOPs, 3·4096²·2 = 100663296 B: 440509.5 ns, 64735.2 ns.
    relu: 1048576 FLOPs, 2·4 MiB = 8388608 B: 53.8 ns in fp32, 5394.6 ns.
    mm tf32: 2·512³ = 268435456 FLOPs, 3·512²·4 = 3145728 B: 1720.7 ns in TF32, 2023.0 ns.
    mm fp32: 2·2048³ = 17179869184 FLOPs, 3·2048²·4 = 50331648 B: 881018.9 ns on plain lanes, 32367.6 ns.
    """
    assert table(view, "ai,bound,roof,eff,peak") == [
        ["59.362", "memory", "5816.1", "50.0", "float16"],
        ["1365.333", "compute", "440509.5", "50.0", "bfloat16"],
        ["na", "-", "0.0", "na", "float32"],
        ["0.125", "memory", "5394.6", "100.0", "float32"],
        ["85.333", "memory", "2023.0", "10.1", "tf32"],
        ["341.333", "compute", "881018.9", "88.1", "float32"],
        ["na", "na", "na", "na", "na"],
    ]


def test_utilisation_of_the_same_rows(view):
    """The times above, divided by 11632, 881019, 3, 5395, 20000 and 1000000 ns."""
    assert table(view, "flops,flops_dense,hfu,mfu") == [
        ["536870912", "536870912", "14.8", "14.8"],
        ["137438953472", "137438953472", "50.0", "50.0"],
        ["0", "0", "0.0", "0.0"],
        ["1048576", "1048576", "1.0", "1.0"],
        ["268435456", "268435456", "8.6", "8.6"],
        ["17179869184", "17179869184", "88.1", "88.1"],
        ["na", "na", "na", "na"],
    ]


def test_a_causal_call_is_used_less_than_its_model(tmp_path: Path):
    """(1, 1, 64, 64): 2080 pairs of 4096; 2080·256 and 4096·256 FLOPs in 10 ns at 312000 per ns."""
    q = half(1, 1, 64, 64)
    causal = call("torch.nn.functional.scaled_dot_product_attention", q, q, q, is_causal=True)
    what = f"{causal}\n aten::x\n  > 10 flash_fwd"
    view = View(rows(loader.load(build.write_nsys(tmp_path / "f", recording(what)))), machine.named("A100"))
    assert table(view, "flops,flops_dense,hfu,mfu") == [["532480", "1048576", "17.1", "33.6"]]


def convolved(path: Path, *kernels: str) -> View:
    """A convolution of 2·1·8·16·16·8·3·3 = 294912 FLOPs, and what it launches."""
    conv = call("torch.conv2d", single(1, 8, 16, 16), single(8, 8, 3, 3), None, 1, 1)
    text = "\n".join([conv, " aten::cudnn_convolution", *(f"  > {name}" for name in kernels)])
    path.mkdir(exist_ok=True)
    trace = loader.load(build.write_nsys(path / "net.sqlite", recording(text)))
    return View(rows(trace), machine.named("V100 SXM2"))


WINOGRAD = "volta_scudnn_winograd_128x128_ldg1_ldg4_relu_tile148t_nt_v1"
ALGORITHMS = [
    # kernels of one convolution in fp32; FLOPs and HFU of each: 294912 / 15700 per ns = 18.8 ns
    ([f"100 {WINOGRAD}"], [("294912", "na")]),
    (["100 volta_scudnn_128x64_relu_interior_nn_v1"], [("294912", "18.8")]),
    (["100 generateWinogradTilesKernel", f"100 {WINOGRAD}"], [("0", "0.0"), ("294912", "na")]),
    # All of them share the FLOPs of the definition, the products between the transforms, too.
    (["50 winograd_nonfused::winogradForwardData4x4", "100 volta_sgemm_128x64_nn",
      "50 winograd_nonfused::winogradForwardOutput4x4"], [("73728", "na"), ("147456", "na"), ("73728", "na")]),
    (["50 void fft2d_r2c_32x32<float>(P)", "100 volta_cgemm_32x32_tn", "50 void fft2d_c2r_32x32<float>(P)"],
     [("73728", "na"), ("147456", "na"), ("73728", "na")]),
    (["100 miopenSp3AsmConv_v30_3_1_gfx94x_fp32_f2x3_stride1"], [("294912", "na")]),
]  # fmt: skip


@pytest.mark.parametrize(("kernels", "expected"), ALGORITHMS)
def test_what_winograd_and_fft_execute_is_unknown(tmp_path: Path, kernels, expected):
    view = convolved(tmp_path, *kernels)
    assert table(view, "flops,hfu") == [list(row) for row in expected]
    assert {row[0] for row in table(view, "mfu")} != {"na"}, "of the model it is known"
    found = Peaks(view.rows, view.costs, [view.hardware], np.zeros(len(view.rows), int)).of(np.arange(len(view.rows)))
    assert (~found["hardware_ps"].mask()).tolist() == [hfu == "na" for _, hfu in expected]
    assert found["roofline_ns"].mask().all()
    assert found["model_ps"].mask().all()


# A100 40GB: 312000 FLOPs and 1555 B per ns, 40 MiB of L2. relu of n floats moves 8·n B.
def relu(mib: int) -> str:
    return f"{call('torch.relu', (mib << 17,))}\n aten::relu\n"


FASTER = [
    # kernels; efficiency and the reason. 16 MiB: 10789 ns; 40 MiB: 26972; 80 MiB: 53944; mm: 107.5 and 252.9.
    (f"{relu(16)}  > 10789 vectorized_elementwise_kernel", "100.0", "-"),
    (f"{relu(16)}  > 10000 vectorized_elementwise_kernel", "107.9", "working set fits in L2 (16 of 40 MiB)"),
    (f"{relu(40)}  > 20000 vectorized_elementwise_kernel", "134.9", "working set fits in L2 (40 of 40 MiB)"),
    # Of 80 MiB memory moves 40 in 26972 ns.
    (f"{relu(80)}  > 27000 vectorized_elementwise_kernel", "199.8",
     "part of the working set fits in L2 (40 of its 80 MiB)"),
    (f"{relu(80)}  > 26900 vectorized_elementwise_kernel", "200.5", "not explained: 80 MiB, L2 has 40"),
    (f"{call('torch.mm', half(256, 256), half(256, 256))}\n aten::mm\n  > 200 {HALF_GEMM}", "126.4",
     "working set fits in L2 (0.4 of 40 MiB)"),
    (f"{call('torch.mm', half(256, 256), half(256, 256))}\n aten::mm\n  > 100 {HALF_GEMM}", "252.9",
     "not explained: more FLOP/s than the peak of float16; working set fits in L2 (0.4 of 40 MiB)"),
    ("> 7 nobody_knows", "na", "na"),
]  # fmt: skip


@pytest.mark.parametrize(("text", "efficiency", "reason"), FASTER)
def test_the_row_says_why_it_is_faster_than_the_roofline(tmp_path: Path, text, efficiency, reason):
    trace = loader.load(build.write_nsys(tmp_path / "net.sqlite", recording(text)))
    view = View(rows(trace), machine.named("A100 40GB"))
    assert table(view, "eff,effwhy") == [[efficiency, reason]]


@pytest.mark.parametrize("time", [30, 20, 10])
def test_the_efficiency_of_winograd_is_unknown_at_any_speed(tmp_path: Path, time: int):
    """294912 FLOPs of the definition at 15700 per ns: 18.8 ns. Winograd executes fewer, and how many is unknown."""
    view = convolved(tmp_path / "f", f"{time} {WINOGRAD}")
    fewer = "Winograd: fewer multiplications than the definition counts"
    assert table(view, "eff,effwhy,hfu") == [["na", fewer, "na"]]


def test_without_the_size_of_the_l2_nothing_is_said_of_it(tmp_path: Path):
    trace = loader.load(build.write_nsys(tmp_path / "f", recording(f"{relu(16)}  > 9 elementwise_kernel")))
    derived = gpus.of(Device(0, "New", 40, "8.6", None, 10**9, 10**12))
    assert table(View(rows(trace), Hardware(every=derived)), "effwhy") == [["na"]]


def test_complex_products_outside_of_convolutions_are_executed(tmp_path: Path):
    """8·64³ = 2097152 FLOPs in 1000 ns at 15700 per ns: 13.4 %."""
    turned = call("torch.mm", Tensor((64, 64), "complex64"), Tensor((64, 64), "complex64"))
    trace = loader.load(
        build.write_nsys(tmp_path / "f", recording(f"{turned}\n aten::mm\n  > 1000 volta_cgemm_32x32_tn"))
    )
    assert table(View(rows(trace), machine.named("V100 SXM2")), "flops,hfu") == [["2097152", "13.4"]]


def on_a_v100(path: Path, *kernels: str) -> Any:
    """A recording of convolutions that launch one kernel of 100 ns each."""
    conv = call("torch.conv2d", single(1, 8, 16, 16), single(8, 8, 3, 3), None, 1, 1)
    text = "\n".join(f"{conv}\n aten::cudnn_convolution\n  > 100 {kernel}" for kernel in kernels)
    build.write_nsys(path, recording(text))
    with contextlib.closing(sqlite3.connect(path)) as connection, connection:
        connection.execute("update TARGET_INFO_GPU set name = 'Tesla V100-SXM2-16GB'")
    return profiles.load(path)


def test_sums_say_how_much_of_the_time_they_know(tmp_path: Path):
    """100 ns of Winograd, 100 of a plain convolution that needs 18.8: the same from the rows and from the database."""
    prof = on_a_v100(tmp_path / "a", WINOGRAD, "volta_scudnn_128x64_relu_interior_nn_v1")
    view = View(prof.rows, prof.hardware)
    needed = 294912 / 15700
    sums = per_group(view.work, np.zeros(2, int), 1)
    assert sums.hfu[0] == pytest.approx(needed / 200)
    assert sums.mfu[0] == pytest.approx(2 * needed / 200)
    assert (sums.hfu_known[0], sums.mfu_known[0]) == (0.5, 1.0)
    window = prof.source().window
    assert metrics.value("hfu", window) == pytest.approx(100 * needed / window.wall, rel=1e-4)
    assert metrics.value("mfu", window) == pytest.approx(200 * needed / window.wall, rel=1e-4)
    assert (metrics.value("hfu_coverage", window), metrics.value("roofline_coverage", window)) == (50, 100)
    prof = on_a_v100(tmp_path / "b", WINOGRAD)
    window = prof.source().window
    assert metrics.value("hfu", window) is None
    assert metrics.value("mfu", window) == pytest.approx(100 * needed / window.wall, rel=1e-4)


def test_verdicts_of_the_same_rows(view):
    assert [text for [text] in table(view, "tcwhy")] == [
        "used",
        "used",
        "-",
        "-",
        "used",
        "float32: TF32 is off, or was not chosen",
        "kernel unknown",
    ]


def test_the_sum_of_roofline_times_of_a_call_is_that_of_the_call(view):
    found = view.roofline.time
    assert found[1] + found[2] == pytest.approx(137438953472 / 312e12 * 1e9)


def test_without_a_gpu_only_what_needs_none_is_known(view):
    bare = View(view.rows)
    assert set(map(tuple, table(bare, "bound,roof,eff,hfu,mfu"))) == {("na",) * 5}
    assert [row[0] for row in table(bare, "ai")][:2] == ["59.362", "1365.333"]
    assert table(bare, "tcwhy")[0] == ["used"]


def test_a_data_frame_holds_them_as_numbers(view):
    found = frame(view, [COLUMNS[key] for key in ("ai", "bound", "roof", "eff", "peak", "tcwhy")])
    assert found["roof"].dtype == np.float64
    assert found["roof"].round(1).tolist()[:3] == [5816.1, 440509.5, 0.0]
    assert np.isnan(found["eff"].iloc[-1])
    assert found["bound"].isna().tolist() == [False] * 6 + [True]


# Zen 3, 32 of 64 cores in use: 32 · 3.5e9 · 32 = 3584 GFLOP/s; 102.4 to 204.8 GB/s.
ZEN3 = {
    "cpu.id": "AuthenticAMD 25 1 1", "cpu.isa": "avx2,fma", "cpu.mhz": "3500", "cpu.mhz.is": "maximum",
    "cpu.cores": "64", "cpu.sockets": "1", "threads.intraop": "32",
}  # fmt: skip


def on_cpu(path: Path, what: str, facts: dict[str, str]) -> View:
    trace = loader.load(build.write_capture(path / "net.sqlite", recording(what)))
    return View(rows(trace), Hardware(facts=facts, every=gpus.find("A100")))


def test_on_the_cpu_they_are_unknown(tmp_path: Path):
    view = on_cpu(tmp_path, f"{call('torch.mm', (8, 8), (8, 8))}\n    op seq=1 aten::mm\n", {})
    assert set(map(tuple, table(view, "bound,roof,eff,tcwhy,hfu,mfu"))) == {("na",) * 6}
    assert set(map(tuple, table(view, "peak"))) == {("float32",)}


def test_on_the_cpu_a_bound_is_said_where_it_is_certain(tmp_path: Path):
    """mm of n: 2n³ / 3584 ns, 12n² B in 12n² / 204.8 to 12n² / 102.4 ns: compute from n = 420 (twice the longest time),
    memory to n = 52 (half of the shortest). relu of 1024²: 293 ns against 40960 ns."""
    text = (
        "".join(f"{call('torch.mm', (n, n), (n, n))}\n    op aten::mm\n" for n in (419, 421, 51, 54))
        + f"{call('torch.relu', (1024, 1024))}\n    op aten::relu\n"
    )
    text += f"{call('torch.empty', 3)}\n    op aten::empty\n"
    view = on_cpu(tmp_path, text, ZEN3)
    assert [row[0] for row in table(view, "bound")] == ["na", "compute", "memory", "na", "memory", "-"]
    assert {tuple(row) for row in table(view, "roof,eff,hfu,mfu,tcwhy")} == {("na",) * 5}


def test_the_command_says_how_the_processors_peaks_were_derived(tmp_path: Path, capsys):
    what = recording(f"{call('torch.mm', (8, 8), (8, 8))}\n    op seq=1 aten::mm\n")
    path = build.write_capture(tmp_path / "net.sqlite", what)
    assert main(["-c", "bound", str(path)]) == 0
    assert "  peaks: the input does not say which processor ran\n" in capsys.readouterr().err


def test_copies_have_no_roofline(tmp_path: Path):
    what = recording("> 5 kernel")
    what.kernels.append(build.Kernel("copy", 500, 509, 1, size=64, copy_kind=1))
    trace = loader.load(build.write_nsys(tmp_path / "net.sqlite", what))
    view = View(rows(trace, memory=True), machine.named("A100"))
    assert ["na"] * 5 + ["-"] in table(view, "bound,roof,eff,hfu,mfu,tcwhy")


def test_an_empty_table_has_them_too(view):
    none = rows_of(view, 0)
    assert table(View(none, view.hardware), "ai,bound,roof,eff,peak,tcwhy") == []


def rows_of(view: View, count: int) -> Any:
    from dataclasses import fields, replace

    from pyprof.core.model import Column

    changes: dict[str, Any] = {}
    for entry in fields(view.rows):
        value = getattr(view.rows, entry.name)
        if isinstance(value, np.ndarray):
            changes[entry.name] = value[:count]
        elif isinstance(value, Column):
            changes[entry.name] = value.take(np.arange(count))
    return replace(view.rows, inner_calls=[c.take(np.arange(count)) for c in view.rows.inner_calls], **changes)


def test_two_gpus_in_one_recording(tmp_path: Path):
    what = recording(f"""
        {call("torch.relu", (1024, 1024))}
            aten::relu, seq = 3
                > 50 device=0 vectorized_elementwise_kernel
        {call("torch.relu", (1024, 1024))}
            aten::relu, seq = 4
                > 50 device=1 vectorized_elementwise_kernel
    """)
    found = rows(loader.load(build.write_nsys(tmp_path / "net.sqlite", what)))
    both = machine.recorded([Device(0, "NVIDIA H100 80GB HBM3"), Device(1, "Tesla T4")], {})
    # 8388608 B at 3350 and at 320 GB/s.
    assert [row[0] for row in table(View(found, both), "roof")] == ["2504.1", "26214.4"]


def case(name: str, call: Call | None, used: int, gpu: str | None = None) -> Case:
    return Case(name, call, used, gpus.find(gpu) if gpu else None)


def op(name: str, *args: Any, mod: str = "torch", **keywords: Any) -> Call:
    return Call(mod, name, (*(Arg("", a) for a in args), *(Arg(k, v) for k, v in keywords.items())))


MM32, MM16 = op("mm", single(64, 64), single(64, 64)), op("mm", half(64, 64), half(64, 64))
MATHS = [
    # kernel, call, tensor cores, GPU, facts, type
    (LANES_GEMM, MM32, NOT_USED, "A100", {}, "float32"),
    (TF32_GEMM, MM32, USED, "A100", {}, "tf32"),
    ("sm80_xmma_gemm_f32f32_f32f32_f32_tn_tensor16x8x8", MM32, USED, "A100", {}, "tf32"),
    ("Cijk_Ailk_Bljk_SB_MT64x64x8_MI32x32x1", MM32, USED, "MI300X", {}, "float32"),
    (HALF_GEMM, MM32, USED, "A100", {}, "float16"),  # autocast: the call was recorded with fp32
    ("unknown_gemm", MM16, TC_UNKNOWN, "A100", {}, "float16"),
    ("unknown_gemm", MM32, TC_UNKNOWN, "A100", {}, None),
    ("unknown_gemm", MM32, TC_UNKNOWN, "A100", {"matmul.tf32": "no"}, "float32"),
    ("unknown_gemm", MM32, TC_UNKNOWN, "A100", {"cudnn.tf32": "no"}, None),
    ("unknown_gemm", MM32, TC_UNKNOWN, "V100 SXM2", {}, "float32"),
    ("volta_cgemm_32x32_tn", op("conv2d", single(1, 3, 9, 9), single(3, 3, 3, 3)), NOT_USED, None, {}, "float32"),
    ("volta_cgemm_32x32_tn", None, NOT_USED, None, {}, "float32"),
    ("add", op("add", half(8), half(8)), NOT_APPLICABLE, None, {}, "float32"),
    ("add", op("add", half(8), Tensor((8,), "float64")), NOT_APPLICABLE, None, {}, "float64"),
    ("add", op("add", Tensor((8,), "int64"), 1), NOT_APPLICABLE, None, {}, None),
    ("where", op("where", Tensor((8,), "bool"), half(8), half(8)), NOT_APPLICABLE, None, {}, "float32"),
    ("cat", op("cat", (single(8), single(8))), NOT_APPLICABLE, None, {}, "float32"),
    ("mine", None, NOT_APPLICABLE, None, {}, None),
]  # fmt: skip


@pytest.mark.parametrize(("name", "called", "used", "gpu", "facts", "expected"), MATHS)
def test_the_type_whose_peak_counts(name, called, used, gpu, facts, expected):
    assert math(case(name, called, used, gpu), Hardware(facts=facts)) == expected


@pytest.mark.parametrize(
    ("dtype", "peak"),
    [
        ("float8_e5m2fnuz", "float8"),
        ("double", "float64"),
        ("uint8", "int8"),
        ("float99", "float99"),
        (None, None),
    ],
)
def test_names_of_types(dtype: str | None, peak: str | None):
    assert normal(dtype) == peak


CONV = "sm80_xmma_fprop_implicit_gemm_f32f32_f32f32_f32_nhwckrsc_nhwc_ffma"
PLAIN_HALF = "gemm_on_lanes_fp16_simt_hgemm"
VERDICTS = [
    (HALF_GEMM, MM16, USED, "A100", {}, "used"),
    (HALF_GEMM, op("mm", half(64, 60), half(60, 33)), USED, "A100", {},
     "used; N=33 not a multiple of 8 (float16): less efficient"),
    (TF32_GEMM, op("linear", single(63, 62), single(64, 62)), USED, "A100", {},
     "used; K=62 not a multiple of 4 (tf32): less efficient"),
    ("nvjet_qqtst_128x128", op("_scaled_mm", Tensor((64, 72), "float8_e4m3fn"), Tensor((72, 64), "float8_e4m3fn")),
     USED, "H100 SXM", {}, "used"),
    (LANES_GEMM, MM32, NOT_USED, "V100 SXM2", {}, "float32: TF32 needs compute capability 8.0, this is 7.0"),
    (LANES_GEMM, MM32, NOT_USED, "A100", {"matmul.tf32": "no"},
     "float32: TF32 is off (torch.backends.cuda.matmul.allow_tf32)"),
    (LANES_GEMM, MM32, NOT_USED, "A100", {"matmul.tf32": "yes"}, "the library chose a kernel without tensor cores"),
    (LANES_GEMM, MM32, NOT_USED, None, {}, "float32: TF32 is off, or was not chosen"),
    (CONV, op("conv2d", single(1, 8, 9, 9), single(8, 8, 3, 3)), NOT_USED, "A100",
     {"cudnn.tf32": "no", "matmul.tf32": "yes"}, "float32: TF32 is off (torch.backends.cudnn.allow_tf32)"),
    ("volta_dgemm_64x64_nn", op("mm", Tensor((8, 8), "float64"), Tensor((8, 8), "float64")), NOT_USED, "V100 SXM2",
     {}, "float64: needs compute capability 8.0, this is 7.0"),
    ("volta_cgemm_32x32_tn", op("mm", Tensor((8, 8), "complex64"), Tensor((8, 8), "complex64")), NOT_USED, "A100",
     {}, "complex64: TF32 is off, or was not chosen"),
    ("x_simt_gemm", op("mm", Tensor((8, 8), "bfloat16"), Tensor((8, 8), "bfloat16")), NOT_USED, "T4", {},
     "bfloat16: needs compute capability 8.0, this is 7.5"),
    ("x_simt_gemm", op("mm", Tensor((8, 8), "float8_e5m2"), Tensor((8, 8), "float8_e5m2")), NOT_USED, "MI210", {},
     "float8: MI210 has no matrix cores for it"),
    (PLAIN_HALF, op("linear", half(63, 33), half(64, 33)), NOT_USED, "V100 SXM2", {"cuda": "10.2"},
     "K=33 not a multiple of 8 (float16): which this version needs"),
    (PLAIN_HALF, op("linear", half(63, 33), half(64, 33)), NOT_USED, "V100 SXM2", {"cuda": "12.4"},
     "K=33 not a multiple of 8 (float16): the library may prefer other kernels"),
    (PLAIN_HALF, op("linear", half(63, 33), half(64, 33)), NOT_USED, "V100 SXM2", {},
     "K=33 not a multiple of 8 (float16): needed before cuBLAS 11"),
    ("simt_conv_fp16_fprop", op("conv2d", half(1, 3, 9, 9), half(8, 3, 3, 3)), NOT_USED, "V100 SXM2",
     {"cudnn": "7501"}, "C/g=3 not a multiple of 8 (float16): which this version needs"),
    ("simt_conv_fp16_fprop", op("conv2d", half(1, 3, 9, 9), half(8, 3, 3, 3)), NOT_USED, "V100 SXM2",
     {"cudnn": "7603"}, "C/g=3 not a multiple of 8 (float16): the library may prefer other kernels"),
    ("conv_depthwise2d_forward_kernel", op("conv2d", half(1, 8, 9, 9), half(8, 1, 3, 3), None, 1, 0, 1, 8), NOT_USED,
     "A100", {}, "one channel per group: nothing to multiply with a matrix"),
    (PLAIN_HALF, op("mm", half(1, 64), half(64, 64)), NOT_USED, "A100", {}, "M=1: a product with a vector"),
    (PLAIN_HALF, op("mm", half(8, 64), half(64, 64)), NOT_USED, "A100", {}, "M=8: less than a tile of 16"),
    ("void gemv2T_kernel_val<int, int, __half>", None, NOT_USED, "A100", {}, "a matrix-vector kernel"),
    ("volta_hcudnn_winograd_fp16", op("conv2d", half(1, 8, 9, 9), half(8, 8, 3, 3)), NOT_USED, "A100", {},
     "the algorithm (Winograd) multiplies elementwise"),
    ("mystery", MM16, TC_UNKNOWN, "A100", {}, "kernel unknown"),
    ("mystery", MM32, TC_UNKNOWN, "V100 SXM2", {},
     "kernel unknown; float32: TF32 needs compute capability 8.0, this is 7.0"),
    ("relu", op("relu", half(8)), NOT_APPLICABLE, "A100", {}, "-"),
]  # fmt: skip


@pytest.mark.parametrize(("name", "called", "used", "gpu", "facts", "expected"), VERDICTS)
def test_why_tensor_cores_were_not_used(name, called, used, gpu, facts, expected):
    assert verdict(case(name, called, used, gpu), Hardware(facts=facts)) == expected


# M=141, N=60, K=33 in fp16, by how the operands lie in memory.
A, TURNED_A = half(141, 33), half(141, 33)._replace(stride=(1, 141))
B, TURNED_B = half(33, 60), half(33, 60)._replace(stride=(1, 33))
LAYOUTS = [
    # call, whether the recording has strides, sizes that are contiguous and odd
    (op("linear", A, half(60, 33)), False, "N=60, K=33"),
    (op("linear", half(3, 47, 33), half(60, 33)), True, "N=60, K=33"),
    (op("linear", TURNED_A, half(60, 33)), True, "M=141, N=60, K=33"),
    (op("mm", A, B), False, "N=60"),
    (op("mm", A, B), True, "N=60, K=33"),
    (op("mm", TURNED_A, B), True, "M=141, N=60"),
    (op("mm", TURNED_A, B), False, "M=141, N=60"),  # one stride says that the recording has them
    (op("mm", A, TURNED_B), False, "N=60, K=33"),
    (op("mm", TURNED_A, TURNED_B), True, "M=141, N=60, K=33"),
    (op("mm", A._replace(stride=(66, 2)), B), True, "N=60"),  # copied first, nobody knows how
    (op("aten::addmm", half(60), A, TURNED_B, mod="aten"), True, "N=60, K=33"),
    (op("aten::addmm", half(60), A, B, mod="aten"), False, "N=60"),
    (op("bmm", half(2, 141, 33)._replace(stride=(4653, 1, 141)), half(2, 33, 60)), True, "M=141, N=60"),
    (op("bmm", half(2, 141, 33), half(2, 33, 60)), True, "N=60, K=33"),
    (op("matmul", half(3, 47, 33), B), True, "N=60, K=33"),
    (op("matmul", half(3, 47, 33)._replace(stride=(1551, 1, 47)), B), True, "N=60"),
    (op("matmul", half(141, 40), half(40, 64)), True, ""),
]  # fmt: skip


@pytest.mark.parametrize(("called", "strides", "odd"), LAYOUTS)
def test_only_contiguous_dimensions_have_to_be_multiples(called, strides, odd):
    found = verdict(Case(HALF_GEMM, called, USED, gpus.find("A100"), strides=strides), Hardware())
    assert found == (f"used; {odd} not a multiple of 8 (float16): less efficient" if odd else "used")


def test_a_recording_that_has_a_stride_has_them_all(tmp_path: Path):
    """Its plain tensors are contiguous: K of mm counts, as it does where the only stride is that of another call."""
    plain, turned = call("torch.mm", A, B), call("torch.relu", TURNED_A)
    for number, (what, expected) in enumerate([(plain, "N=60"), (f"{plain}\n{turned}", "N=60, K=33")]):
        text = "\n".join(f"{line}\n aten::x\n  > 10 {HALF_GEMM}" for line in what.splitlines())
        view = View(rows(loader.load(build.write_nsys(tmp_path / str(number), recording(text)))))
        assert table(view, "tcwhy")[0] == [f"used; {expected} not a multiple of 8 (float16): less efficient"]


def test_a_gpu_without_tensor_cores():
    turing = gpus.of(Device(0, "NVIDIA GeForce GTX 1660", 22, "7.5", None, 1_785_000_000, 192_000_000_000))
    found = verdict(Case(PLAIN_HALF, MM16, NOT_USED, turing), Hardware())
    assert found == "NVIDIA GeForce GTX 1660 has no tensor cores"


def test_a_recording_names_its_gpu_by_table_or_by_facts():
    facts = {"gpu.0.name": "NVIDIA H200", "gpu.1.name": "Odd", "gpu.1.sm_count": "8", "gpu.count": "2"}
    found = machine.recorded([], facts)
    assert found.gpu(0) == gpus.find("H200")
    assert found.gpu(1) is None
    assert found.gpu(None) is None
    assert found.notes == (
        "device 1, Odd, is not in the table of GPUs: the recording lacks its clock; name one with --gpu",
    )
    assert machine.recorded([], {}).notes == machine.NOTHING.notes


def test_a_gpu_that_nobody_knows_is_a_usage_error():
    with pytest.raises(UsageError, match="--gpu 'Abacus' is not in the table of GPUs; choose one of: P100 SXM2, "):
        machine.named("Abacus")


@pytest.fixture
def recorded(tmp_path: Path) -> Path:
    return build.write_nsys(tmp_path / "net.sqlite", recording(TRAINING))


def test_the_command_says_once_why_there_are_no_peaks(recorded, capsys):
    assert main(["-c", "roof,eff", str(recorded)]) == 0
    out, err = capsys.readouterr()
    assert out.splitlines()[1:] == ["na na"] * 7
    assert err.count("peaks:") == 1
    assert "  peaks: device 0, GPU, is not in the table of GPUs: the recording lacks its clock" in err
    assert main(["-c", "ai,tc", str(recorded)]) == 0  # nothing that needs a GPU
    assert "peaks:" not in capsys.readouterr().err


def test_the_command_compares_with_the_gpu_named(recorded, capsys):
    assert main(["-c", "bound,roof", "--gpu", "a100-sxm4-40gb", str(recorded)]) == 0
    out, err = capsys.readouterr()
    assert out.splitlines()[1] == "memory 5816.1"
    assert "peaks:" not in err
    assert main(["-c", "roof", "--gpu", "Abacus", str(recorded)]) == 2
    assert "'Abacus' is not in the table of GPUs" in capsys.readouterr().err


def test_a_net_dict_takes_the_gpu_from_the_option(recorded, tmp_path, capsys):
    from tests.cli import parse

    net = tmp_path / "net.dict"
    assert parse([str(recorded), "-o", str(net)]) == 0
    assert main(["-c", "roof", str(net)]) == 0
    out, err = capsys.readouterr()
    assert set(out.splitlines()[1:]) == {"na"}
    assert "peaks: the input does not say which GPU ran; name it with --gpu" in err
    assert main(["-c", "roof", "--gpu", "A100", str(net)]) == 0
    assert capsys.readouterr().out.splitlines()[1] == "5816.1"


def test_recordings_of_others(data: Path):
    """The 2020 language model on a V100, in fp32; a CNN on a GeForce."""
    from pyprof.profiles import load

    found = load(data / "nvprof" / "transformer_lm" / "net.sql").table
    known = found["roof"].notna()
    assert known.mean() > 0.75
    # Products of a small batch in L2 may beat the memory's bandwidth, nothing beats the peak of the lanes.
    assert (found["eff"][known & (found["bound"] == "compute")] <= 100).all()
    why = found["tcwhy"][found["tc"] == "0"]
    assert set(why) == {"float32: TF32 needs compute capability 8.0, this is 7.0"}
    turing = load(data / "nsys" / "cifar_rtx2070_pyprof_markers.sqlite")
    gpu = turing.hardware.gpu(0)
    assert gpu is not None
    assert (gpu.name, gpu.l2) == ("GeForce RTX 2070 SUPER", 4 << 20)
    assert turing.table["roof"].notna().mean() > 0.9
