# SPDX-License-Identifier: Apache-2.0
"""Peaks of GPUs: names as they stand in files, figures that fit the hardware they belong to, what is derived."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace

import pytest

from pyprof.capture.collectors import gpus as capture_gpus
from pyprof.model import Device
from pyprof.parse import formats
from pyprof.prof import gpu_table, gpus
from tests import build
from tests.build import recording

# As drivers and torch report them.
NAMES = [
    ("Tesla V100-SXM2-16GB", "V100 SXM2"), ("Tesla V100-SXM2-32GB", "V100 SXM2"),
    ("Tesla V100-DGXS-32GB", "V100 SXM2"), ("Tesla V100-PCIE-16GB", "V100 PCIe"),
    ("Tesla V100S-PCIE-32GB", "V100S PCIe"), ("Tesla T4", "T4"), ("NVIDIA TITAN RTX", "Titan RTX"),
    ("NVIDIA GeForce RTX 2070", "GeForce RTX 2070"), ("NVIDIA GeForce RTX 2070 SUPER", None),
    ("GeForce RTX 2080 Ti", "GeForce RTX 2080 Ti"), ("Quadro RTX 8000", "Quadro RTX 6000"),
    ("NVIDIA A100-SXM4-40GB", "A100 40GB"), ("A100-SXM4-80GB", "A100 80GB SXM"),
    ("NVIDIA A100 80GB PCIe", "A100 80GB PCIe"), ("NVIDIA A100-PCIE-40GB", "A100 40GB"),
    ("NVIDIA A100-PG509-200", "A100 40GB"), ("NVIDIA A100-SXM4-40GB MIG 1g.5gb", None), ("NVIDIA A10", "A10"),
    ("NVIDIA A10G", None), ("NVIDIA A30", "A30"), ("NVIDIA A40", "A40"), ("NVIDIA RTX A6000", "RTX A6000"),
    ("NVIDIA GeForce RTX 3090", "GeForce RTX 3090"), ("NVIDIA GeForce RTX 3090 Ti", "GeForce RTX 3090 Ti"),
    ("NVIDIA GeForce RTX 3080 Laptop GPU", None), ("NVIDIA L4", "L4"), ("NVIDIA L40", "L40"), ("NVIDIA L40S", "L40S"),
    ("NVIDIA GeForce RTX 4090", "GeForce RTX 4090"), ("NVIDIA GeForce RTX 4090 D", None),
    ("NVIDIA GeForce RTX 4080 SUPER", None), ("NVIDIA RTX 6000 Ada Generation", "RTX 6000 Ada"),
    ("NVIDIA H100 80GB HBM3", "H100 SXM"), ("NVIDIA H100 PCIe", "H100 PCIe"), ("NVIDIA H100 NVL", "H100 NVL"),
    ("NVIDIA H200", "H200 SXM"), ("NVIDIA H200 NVL", "H200 NVL"), ("NVIDIA GH200 480GB", "GH200 96GB"),
    ("NVIDIA GH200 144G HBM3e", "GH200 144GB"), ("NVIDIA H20", None), ("NVIDIA H100 64GB HBM2", None),
    ("NVIDIA B200", "B200"), ("NVIDIA GB200", "GB200, per GPU"),
    ("NVIDIA RTX PRO 6000 Blackwell Workstation Edition", "RTX PRO 6000 Blackwell"),
    ("NVIDIA RTX PRO 6000 Blackwell Max-Q Workstation Edition", None),
    ("NVIDIA GeForce RTX 5090", "GeForce RTX 5090"), ("NVIDIA GeForce RTX 5070 Ti", "GeForce RTX 5070 Ti"),
    ("AMD Instinct MI210", "MI210"), ("AMD Instinct MI250X", "MI250X, per die"), ("AMD Instinct MI300X", "MI300X"),
    ("AMD Instinct MI325X", "MI325X"), ("AMD Instinct MI100", "MI100"), ("", None), ("GPU", None),
]  # fmt: skip


@pytest.mark.parametrize(("device", "product"), NAMES)
def test_names_of_devices(device: str, product: str | None):
    found = gpus.find(device)
    assert (found.name if found else None) == product


@pytest.mark.parametrize("product", gpu_table.PRODUCTS, ids=lambda product: product.name)
def test_every_product_finds_itself_and_says_where_it_comes_from(product):
    found = gpus.find(product.name.replace(", per", " per"))
    assert found is not None
    assert found.name == product.name
    assert "data sheet" in product.source or "white paper" in product.source or "brochure" in product.source
    assert product.gbs > 100
    assert product.vector["float32"] > 1


@pytest.mark.parametrize("product", gpu_table.PRODUCTS, ids=lambda product: product.name)
def test_figures_fit_multiprocessors_clock_and_operations_per_clock(product):
    """Two independent sources of each number: the data sheet, and units · clock · operations per clock."""
    if product.architecture not in gpu_table.PER_CLOCK or product.boost_mhz is None:
        return
    vector, matrix = gpu_table.PER_CLOCK[product.architecture]
    rate = product.units * product.boost_mhz * 1e-6
    for math, tflops in product.vector.items():
        assert tflops == pytest.approx(rate * vector[math], rel=0.02), math
    for math, tflops in product.matrix.items():
        half = ("GeForce" in product.name or product.name == "L40") and math in gpu_table.HALF_ON_GEFORCE
        if product.name == "L40" and math == "int8":
            half = True
        expected = rate * matrix[math] / (2 if half else 1)
        if product.architecture == "9.0" and math != "float64":  # tensor work boosts to a lower clock
            assert 0.85 * expected < tflops < 0.94 * expected, math
        else:
            assert tflops == pytest.approx(expected, rel=0.02), math


@pytest.mark.parametrize("capability", ["8.0", "9.0", "10.0"])
def test_operations_per_clock_agree_with_torchs_table(capability: str):
    torch = pytest.importorskip("torch")
    limits = pytest.importorskip("torch.cuda._device_limits").GPULimits
    vector, matrix = gpu_table.PER_CLOCK[capability]
    theirs = limits.__new__(limits)
    theirs.compute_capability = int(capability.replace(".", ""))
    for math in ("float32", "float64"):
        assert vector[math] == 2 * theirs.get_fma_per_cycle_per_sm_cuda_cores(getattr(torch, math))
    pairs = {"tf32": torch.float32, "float16": torch.float16, "bfloat16": torch.bfloat16, "int8": torch.int8}
    for math, dtype in pairs.items():
        assert matrix[math] == 2 * theirs.get_fma_per_cycle_per_sm_tensor_cores(dtype)


def test_ratios_between_types_that_the_hardware_has():
    for product in gpu_table.PRODUCTS:
        matrix = product.matrix
        if "tf32" in matrix and "float16" in matrix:
            assert matrix["float16"] == pytest.approx(2 * matrix["tf32"], rel=0.02), product.name
        if "float8" in matrix:
            assert matrix["float8"] == pytest.approx(2 * matrix["float16"], rel=0.02), product.name
        if "int8" in matrix and product.architecture in ("8.0", "9.0", "10.0", "gfx942", "gfx950"):
            assert matrix["int8"] == pytest.approx(2 * matrix["float16"], rel=0.02), product.name


def test_the_page_says_of_every_gpu_what_was_compared():
    names = {product.name for product in gpu_table.PRODUCTS}
    assert set(gpu_table.LOOKED_UP) <= names
    page = gpus.markdown()
    assert all(f"| {gpu_table.LOOKED_UP.get(name, 'none')} |" in page for name in names)
    # What nobody has compared is at least compared with units and clock, in the test above.
    for product in gpu_table.PRODUCTS:
        if product.name not in gpu_table.LOOKED_UP:
            assert product.architecture in gpu_table.PER_CLOCK
            assert product.boost_mhz is not None


# Dense figures as PyTorch Lightning, MosaicML Composer and torchtitan have them, with the data sheets that they cite.
ELSEWHERE = [
    ("V100 SXM2", {"float64": 7.8, "float32": 15.7, "float16": 125}), ("V100 PCIe", {"float64": 7, "float16": 112}),
    ("V100S PCIe", {"float64": 8.2, "float32": 16.4, "float16": 130}), ("T4", {"float16": 65, "int8": 130}),
    ("A100 40GB", {"float32": 19.5, "tf32": 156, "bfloat16": 312}), ("A10", {"tf32": 62.5, "bfloat16": 125}),
    ("H100 SXM", {"tf32": 989 / 2, "bfloat16": 1979 / 2, "float8": 3958 / 2, "int8": 3958 / 2}),
    ("H100 PCIe", {"tf32": 378, "float16": 1513 / 2, "float8": 3026 / 2}), ("H100 NVL", {"bfloat16": 835}),
    ("H200 SXM", {"bfloat16": 989}), ("B200", {"bfloat16": 2250}), ("L40S", {"bfloat16": 362}),
    ("MI250X, per die", {"bfloat16": 191.5}), ("MI300X", {"bfloat16": 1307.4, "float8": 2614.9}),
]  # fmt: skip


@pytest.mark.parametrize(("name", "figures"), ELSEWHERE)
def test_figures_agree_with_other_programs(name: str, figures: dict[str, float]):
    product = next(p for p in gpu_table.PRODUCTS if p.name == name)
    for math, tflops in figures.items():
        assert {**product.vector, **product.matrix}[math] == pytest.approx(tflops, rel=0.002), math


def test_an_unknown_gpu_is_derived_and_says_so():
    turing = Device(0, "NVIDIA GeForce RTX 2070 SUPER", 40, "7.5", 8 << 30, 1_785_000_000, 448_064_000_000)
    gpu = gpus.of(turing)
    assert gpu is not None
    assert gpu.derived
    assert "40 multiprocessors at 1785 MHz" in gpu.source
    assert gpu.vector["float32"] == 40 * 128 * 1.785e9
    assert gpu.matrix["float16"] == 40 * 1024 * 1.785e9 / 2  # 32 bit accumulation is half as fast on GeForce
    assert gpu.matrix["int8"] == 40 * 2048 * 1.785e9
    assert gpu.bandwidth == 448.064e9


def test_what_cannot_be_derived_is_unknown():
    assert gpus.of(Device(0, "New", 40, "7.5")) is None  # no clock
    assert gpus.of(Device(0, "New", None, "7.5", None, 10**9)) is None
    assert gpus.of(Device(0, "New", 40, "99.0", None, 10**9)) is None
    gpu = gpus.of(Device(0, "New", 40, "8.6", None, 10**9))
    assert gpu is not None
    assert gpu.bandwidth is None


def test_turing_without_tensor_cores():
    gpu = gpus.of(Device(0, "NVIDIA GeForce GTX 1660 Ti", 24, "7.5", None, 1_770_000_000, 288_000_000_000))
    assert gpu is not None
    assert gpu.matrix == {}
    assert gpu.supports("float16") is False
    assert gpu.peak("float16", True) == 24 * 128 * 1.77e9


@pytest.mark.parametrize(
    ("name", "math", "product", "tflops"),
    [
        ("A100", "tf32", True, 156), ("A100", "float32", True, 19.5), ("A100", "float32", False, 19.5),
        ("A100", "float64", True, 19.5), ("A100", "float64", False, 9.7), ("A100", "bfloat16", True, 312),
        ("A100", "bfloat16", False, 19.5), ("V100 SXM2", "bfloat16", True, 15.7), ("V100 SXM2", "float16", True, 125),
        ("MI300X", "float32", True, 163.4), ("A100", "float8", True, None), ("A100", "int32", False, None),
        ("RTX PRO 6000 Blackwell", "float8", True, 1007.6), ("H100 PCIe", "float4", True, None),
    ],
)  # fmt: skip
def test_which_peak_a_type_has(name: str, math: str, product: bool, tflops: float | None):
    gpu = gpus.find(name)
    assert gpu is not None
    assert gpu.peak(math, product) == (None if tflops is None else tflops * 1e12)


def test_clock_and_bandwidth_are_read_from_recordings_of_others(data: Path):
    turing = formats.load(data / "nsys" / "cifar_rtx2070_pyprof_markers.sqlite").devices[0]
    assert (turing.clock_hz, turing.bandwidth) == (1_785_000_000, 448_064_000_000)
    volta = formats.load(data / "nvprof" / "transformer_lm" / "net.sql").devices[0]
    assert (volta.clock_hz, volta.bandwidth) == (1_530_000_000, 898_048_000_000)


def test_clock_and_bandwidth_of_our_own_recordings():
    """HBM3 of an H100: 2619 MHz, two transfers, 5120 bits."""
    properties = SimpleNamespace(
        name="H", clock_rate=1_980_000, memory_clock_rate=2_619_000, memory_bus_width=5120
    )
    row = capture_gpus.row(0, properties)
    assert (row["clockRate"], row["memoryBandwidth"]) == (1_980_000_000, 3_352_320_000_000)
    assert set(row) == set(capture_gpus.COLUMNS)
    older = capture_gpus.row(0, SimpleNamespace(name="H"))
    assert (older["clockRate"], older["memoryBandwidth"]) == (None, None)


def test_a_recording_without_them_has_none(tmp_path: Path):
    trace = formats.load(build.write_nsys(tmp_path / "net.sqlite", recording("> 5 kernel")))
    assert (trace.devices[0].clock_hz, trace.devices[0].bandwidth) == (None, None)
