# SPDX-License-Identifier: Apache-2.0
"""Peaks of GPUs: names as they stand in files, figures that fit the hardware they belong to, what is derived."""

from __future__ import annotations

import re
from pathlib import Path
from types import SimpleNamespace

import pytest

from pyprof.capture.collectors import gpus as capture_gpus
from pyprof.core.model import Device
from pyprof.costs.hardware import gpu_table, gpus
from pyprof.parse import loader
from pyprof.reference.gpus import markdown
from tests import build
from tests.build import recording

# As drivers and torch report them.
NAMES = [
    ("Tesla P100-SXM2-16GB", "P100 SXM2"), ("Tesla P100-PCIE-16GB", "P100 PCIe 16GB"),
    ("Tesla P100-PCIE-12GB", "P100 PCIe 12GB"), ("GeForce GTX 1080 Ti", "GeForce GTX 1080 Ti"),
    ("NVIDIA GeForce GTX 1080", None), ("NVIDIA TITAN Xp", None),
    ("Tesla V100-SXM2-16GB", "V100 SXM2"), ("Tesla V100-SXM2-32GB", "V100 SXM2"),
    ("Tesla V100-SXM2-32GB-LS", None), ("Tesla V100-SXM3-32GB", None), ("Tesla V100-FHHL-16GB", None),
    ("Quadro GV100", "Quadro GV100"), ("NVIDIA TITAN V", None), ("GRID V100D-32Q", None),
    ("Tesla V100-DGXS-32GB", "V100 SXM2"), ("Tesla V100-PCIE-16GB", "V100 PCIe"),
    ("Tesla V100S-PCIE-32GB", "V100S PCIe"), ("Tesla T4", "T4"), ("GRID T4-16Q", None), ("NVIDIA T400", None),
    ("NVIDIA TITAN RTX", "Titan RTX"), ("Quadro RTX 8000", "Quadro RTX 6000"), ("Quadro RTX 5000", "Quadro RTX 5000"),
    ("Quadro RTX 5000 with Max-Q Design", None), ("Quadro RTX 6000 with Max-Q Design", None),
    ("NVIDIA GeForce RTX 2070", "GeForce RTX 2070"), ("NVIDIA GeForce RTX 2070 SUPER", "GeForce RTX 2070 SUPER"),
    ("GeForce RTX 2070 Super with Max-Q Design", None), ("GeForce RTX 2080", "GeForce RTX 2080"),
    ("NVIDIA GeForce RTX 2080 SUPER", "GeForce RTX 2080 SUPER"), ("GeForce RTX 2080 Ti", "GeForce RTX 2080 Ti"),
    ("NVIDIA A100-SXM4-40GB", "A100 40GB"), ("A100-SXM4-80GB", "A100 80GB SXM"), ("A100-SXM-80GB", "A100 80GB SXM"),
    ("NVIDIA A100-SXM-64GB", "A100 64GB"), ("A100-SXM4-40GB", "A100 40GB"),
    ("NVIDIA A100 80GB PCIe", "A100 80GB PCIe"), ("NVIDIA A100-PCIE-40GB", "A100 40GB"),
    ("NVIDIA A100-PG509-200", "A100 40GB"), ("NVIDIA A100-SXM4-40GB MIG 1g.5gb", None), ("GRID A100-10C", None),
    ("NVIDIA A100-40C", None), ("NVIDIA A100X", None), ("NVIDIA A800-SXM4-80GB", "A800 80GB SXM"),
    ("NVIDIA A800 80GB PCIe", "A800 80GB PCIe"), ("NVIDIA A800 40GB Active", None),
    ("NVIDIA A10", "A10"), ("NVIDIA A10G", "A10G"), ("NVIDIA A10-24Q", None), ("NVIDIA A16", None),
    ("NVIDIA A30", "A30"), ("NVIDIA A40", "A40"), ("NVIDIA A40-48Q", None), ("NVIDIA RTX A4000", "RTX A4000"),
    ("NVIDIA RTX A4000 Laptop GPU", None), ("NVIDIA RTX A5000", "RTX A5000"), ("NVIDIA RTX A5500", None),
    ("NVIDIA RTX A6000", "RTX A6000"), ("NVIDIA GeForce RTX 3060", "GeForce RTX 3060"),
    ("NVIDIA GeForce RTX 3060 Ti", None), ("NVIDIA GeForce RTX 3080 Ti", "GeForce RTX 3080 Ti"),
    ("NVIDIA GeForce RTX 3080 Ti Laptop GPU", None), ("NVIDIA GeForce RTX 3090", "GeForce RTX 3090"),
    ("NVIDIA GeForce RTX 3090 Ti", "GeForce RTX 3090 Ti"), ("NVIDIA GeForce RTX 3080 Laptop GPU", None),
    ("Orin", None), ("NVIDIA Thor", None),  # of several modules; units tell them apart
    ("NVIDIA L4", "L4"), ("NVIDIA L20", "L20"), ("NVIDIA L40", "L40"), ("NVIDIA L40S", "L40S"), ("NVIDIA L40G", None),
    ("NVIDIA L2", None), ("NVIDIA GeForce RTX 4070", "GeForce RTX 4070"),
    ("NVIDIA GeForce RTX 4070 SUPER", "GeForce RTX 4070 SUPER"), ("NVIDIA GeForce RTX 4070 Ti", "GeForce RTX 4070 Ti"),
    ("NVIDIA GeForce RTX 4070 Ti SUPER", None), ("NVIDIA GeForce RTX 4070 Laptop GPU", None),
    ("NVIDIA GeForce RTX 4080 SUPER", "GeForce RTX 4080 SUPER"), ("NVIDIA GeForce RTX 4090", "GeForce RTX 4090"),
    ("NVIDIA GeForce RTX 4090 D", "GeForce RTX 4090 D"), ("NVIDIA GeForce RTX 4090 Laptop GPU", None),
    ("NVIDIA RTX 4000 Ada Generation", "RTX 4000 Ada"), ("NVIDIA RTX 4000 SFF Ada Generation", None),
    ("NVIDIA RTX 5000 Ada Generation", "RTX 5000 Ada"), ("NVIDIA RTX 5000 Ada Generation Laptop GPU", None),
    ("NVIDIA RTX 6000 Ada Generation", "RTX 6000 Ada"),
    ("NVIDIA H100 80GB HBM3", "H100 SXM"), ("NVIDIA H100 PCIe", "H100 PCIe"), ("NVIDIA H100 NVL", "H100 NVL"),
    ("NVIDIA H100 64GB HBM2", None), ("NVIDIA H100 96GB HBM3", None), ("NVIDIA H100 80GB HBM3 MIG 3g.40gb", None),
    ("NVIDIA H800", "H800 SXM"), ("NVIDIA H800 PCIe", "H800 PCIe"), ("NVIDIA H20", "H20"), ("NVIDIA H20-3e", None),
    ("NVIDIA H200", "H200 SXM"), ("NVIDIA H200 NVL", "H200 NVL"), ("NVIDIA GH200 480GB", "GH200 96GB"),
    ("NVIDIA GH200 144G HBM3e", "GH200 144GB"), ("NVIDIA B200", "B200"), ("NVIDIA GB200", "GB200, per GPU"),
    ("NVIDIA B300 SXM6 AC", "B300"), ("NVIDIA GB300", "GB300, per GPU"), ("NVIDIA GB10", "GB10"),
    ("NVIDIA RTX PRO 6000 Blackwell Workstation Edition", "RTX PRO 6000 Blackwell"),
    ("NVIDIA RTX PRO 6000 Blackwell Server Edition", "RTX PRO 6000 Blackwell"),
    ("NVIDIA RTX PRO 6000 Blackwell Max-Q Workstation Edition", "RTX PRO 6000 Blackwell Max-Q"),
    ("NVIDIA GeForce RTX 5090", "GeForce RTX 5090"), ("NVIDIA GeForce RTX 5090 D", None),
    ("NVIDIA GeForce RTX 5070 Ti", "GeForce RTX 5070 Ti"), ("AMD Radeon RX 7900 XTX", "Radeon RX 7900 XTX"),
    ("AMD Radeon RX 7900 XT", None), ("AMD Instinct MI308X", None), ("AMD Instinct MI210", "MI210"),
    ("AMD Instinct MI250X", "MI250X, per die"), ("AMD Instinct MI300X", "MI300X"),
    ("AMD Instinct MI325X", "MI325X"), ("AMD Instinct MI100", "MI100"), ("", None), ("GPU", None),
]  # fmt: skip
# Name, multiprocessors, GiB: what one name stands for.
SIZES = [
    ("NVIDIA GeForce RTX 3080", 68, 9.8, "GeForce RTX 3080"), ("NVIDIA GeForce RTX 3080", 70, 11.8, None),
    ("NVIDIA GeForce RTX 3080", None, 11.8, None), ("NVIDIA GeForce RTX 3060", 28, 11.8, "GeForce RTX 3060"),
    ("NVIDIA GeForce RTX 3060", 28, 7.8, None), ("NVIDIA A100-SXM4-40GB", 108, 39.4, "A100 40GB"),
    ("NVIDIA A100-SXM4-40GB", 14, 4.8, None), ("A100", None, 79.2, None),
    ("NVIDIA A100-SXM-64GB", 124, 63.4, "A100 64GB"),
    ("NVIDIA A100-SXM-64GB", 108, 63.4, None), ("NVIDIA H20", 78, 95.1, "H20"), ("NVIDIA H20", 78, 140, None),
    ("Orin", 16, 61.4, "Jetson AGX Orin 64GB"), ("Orin", 8, 15.3, None),
    ("NVIDIA Thor", 20, 122, "Jetson AGX Thor T5000"),
    ("NVIDIA H100 80GB HBM3", 132, 79.2, "H100 SXM"), ("NVIDIA H100 80GB HBM3", 60, 39, None),
    ("AMD Instinct MI300X", 304, 192, "MI300X"), ("AMD Instinct MI300X", 38, 24, None),  # one of 8 partitions
    ("AMD Radeon RX 7900 XTX", 48, 24, "Radeon RX 7900 XTX"),  # HIP counts pairs of compute units
]  # fmt: skip


@pytest.mark.parametrize(("device", "units", "gib", "product"), SIZES)
def test_units_and_memory_tell_products_of_one_name_apart(device, units, gib, product):
    found = gpus.of(Device(0, device, units, "9.0", round(gib * (1 << 30))))
    assert (found.name if found else None) == product


def test_an_amd_gpu_is_never_taken_for_one_of_nvidia():
    """ROCm's 9.0 is gfx90a, not Hopper."""
    assert gpus.of(Device(0, "AMD Instinct MI999", 100, "9.0", None, 10**9)) is None


@pytest.mark.parametrize(("device", "product"), NAMES)
def test_names_of_devices(device: str, product: str | None):
    found = gpus.find(device)
    assert (found.name if found else None) == product


@pytest.mark.parametrize("product", gpu_table.PRODUCTS, ids=lambda product: product.name)
def test_every_product_finds_itself_and_says_where_it_comes_from(product):
    found = gpus.find(product.name.replace(", per", " per"))
    assert found is not None
    assert found.name == product.name
    assert re.search("data sheet|white paper|brochure|specifications", product.source)
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
        half = "GeForce" in product.name and math in gpu_table.HALF_ON_GEFORCE
        half |= product.name in ("L40", "L20", "A10G")  # sold with half of the rate, in all types
        expected = rate * matrix[math] / (2 if half else 1)
        if product.architecture == "9.0" and math != "float64":  # tensor work boosts to a lower clock
            assert 0.85 * expected < tflops < 0.94 * expected, math
        else:
            assert tflops == pytest.approx(expected, rel=0.02), math


# Width of the bus in bits, GHz or Gbit/s of a pin: bandwidth by the memory's own data.
MEMORY = [
    ("P100 SXM2", 4096, 1.43), ("GeForce GTX 1080 Ti", 352, 11), ("Quadro GV100", 4096, 1.7),
    ("V100 SXM2", 4096, 1.754),
    ("T4", 256, 10), ("GeForce RTX 2080 Ti", 352, 14), ("GeForce RTX 2080 SUPER", 256, 15.5),
    ("GeForce RTX 2070 SUPER", 256, 14), ("A100 40GB", 5120, 2.43), ("A100 80GB SXM", 5120, 3.186),
    ("A10G", 384, 12.5), ("RTX A4000", 256, 14), ("RTX A5000", 384, 16), ("GeForce RTX 3060", 192, 15),
    ("GeForce RTX 3080 Ti", 384, 19), ("GeForce RTX 3080", 320, 19), ("Jetson AGX Orin 64GB", 256, 6.4),
    ("L20", 384, 18), ("L40S", 384, 18), ("RTX 4000 Ada", 160, 18), ("RTX 5000 Ada", 256, 18),
    ("GeForce RTX 4070", 192, 21), ("GeForce RTX 4070 SUPER", 192, 21), ("GeForce RTX 4080 SUPER", 256, 23),
    ("GeForce RTX 4090 D", 384, 21), ("H100 SXM", 5120, 5.238), ("RTX PRO 6000 Blackwell Max-Q", 512, 28),
    ("GeForce RTX 5090", 512, 28), ("GB10", 256, 8.533), ("Radeon RX 7900 XTX", 384, 20),
]  # fmt: skip


@pytest.mark.parametrize(("name", "bits", "rate"), MEMORY)
def test_bandwidth_is_the_width_of_the_bus_times_the_rate_of_a_pin(name: str, bits: int, rate: float):
    product = next(p for p in gpu_table.PRODUCTS if p.name == name)
    assert product.gbs == pytest.approx(bits / 8 * rate, rel=0.01)


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
        if "float8" in matrix and "float16" in matrix:
            assert matrix["float8"] == pytest.approx(2 * matrix["float16"], rel=0.02), product.name
        if "int8" in matrix and product.architecture in ("8.0", "9.0", "10.0", "gfx942", "gfx950"):
            assert matrix["int8"] == pytest.approx(2 * matrix["float16"], rel=0.02), product.name


def test_the_page_says_of_every_gpu_what_was_compared():
    names = {product.name for product in gpu_table.PRODUCTS}
    assert set(gpu_table.LOOKED_UP) <= names
    page = markdown()
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
    turing = Device(0, "NVIDIA GeForce RTX 2060 MAX", 40, "7.5", 8 << 30, 1_785_000_000, 448_064_000_000)
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
    turing = loader.load(data / "nsys" / "cifar_rtx2070_pyprof_markers.sqlite").devices[0]
    assert (turing.clock_hz, turing.bandwidth) == (1_785_000_000, 448_064_000_000)
    volta = loader.load(data / "nvprof" / "transformer_lm" / "net.sql").devices[0]
    assert (volta.clock_hz, volta.bandwidth) == (1_530_000_000, 898_048_000_000)


def test_clock_and_bandwidth_of_our_own_recordings():
    """HBM3 of an H100: 2619 MHz, two transfers, 5120 bits."""
    properties = SimpleNamespace(name="H", clock_rate=1_980_000, memory_clock_rate=2_619_000, memory_bus_width=5120)
    row = capture_gpus.row(0, properties)
    assert (row["clockRate"], row["memoryBandwidth"]) == (1_980_000_000, 3_352_320_000_000)
    assert set(row) == set(capture_gpus.COLUMNS)
    older = capture_gpus.row(0, SimpleNamespace(name="H"))
    assert (older["clockRate"], older["memoryBandwidth"]) == (None, None)


def test_a_recording_without_them_has_none(tmp_path: Path):
    trace = loader.load(build.write_nsys(tmp_path / "net.sqlite", recording("> 5 kernel")))
    assert (trace.devices[0].clock_hz, trace.devices[0].bandwidth) == (None, None)
