# SPDX-License-Identifier: Apache-2.0
"""Peaks of GPUs: the table behind `gpus.py`, one row per product.

Teraflops (1e12 per second; a fused multiply-add is 2) without sparsity, bandwidth in 1e9 bytes per second, L2 in
MiB. If a maker prints figures only with 2:4 sparsity, the dense one is half of it. 16 bit and fp8 rates are those
with an accumulator of 32 bits, which PyTorch's libraries use: half of the headline on GeForce. Figures that the
source does not give are left out. Multiprocessors and boost clock serve to check the figures: units x clock x
operations per clock. `source` is the maker's document that prints the figures; LOOKED_UP says which have been looked
up, and where. MI250X and MI250 are two devices to the program: the rows have half of the board's figures. So do the
halves of GB200. Names are distinguished by memory and units as well, if a recording has them: other units, another
product (a slice of one, a laptop's, an edition for one country); `gib` if one name is sold with several memories.
Add a GPU: one row, and one in LOOKED_UP once you have compared its figures with another source. The first pattern
that matches the device's name wins.
"""

from __future__ import annotations

from typing import NamedTuple


class Product(NamedTuple):
    """One row. `vector` and `matrix` are TFLOP/s by type, on plain lanes and on tensor or matrix cores."""

    name: str
    pattern: str  # of the device's name, in lower case, "-" and "_" as blanks
    architecture: str  # CUDA compute capability, or LLVM's name of an AMD processor
    units: int | None  # multiprocessors or compute units
    boost_mhz: int | None
    vector: dict[str, float]
    matrix: dict[str, float]
    gbs: float
    l2: float | None
    source: str
    gib: int | None = None  # memory, if the same name is sold with several
    by_units: bool = False  # the device's name is ambiguous: units decide


def V(fp32: float, fp64: float | None = None) -> dict[str, float]:
    return {"float32": fp32} | ({} if fp64 is None else {"float64": fp64})


def M(half: float | None = None, **types: float) -> dict[str, float]:
    """Return rates of matrix units. `half` stands for float16 and bfloat16."""
    return ({} if half is None else {"float16": half, "bfloat16": half}) | types


P = Product

# fmt: off
# ruff: noqa: E501  (one row per line)
PRODUCTS = [
    # Pascal: no tensor cores.
    P("P100 SXM2", r"\bp100 sxm2( 16gb)?$", "6.0", 56, 1480, V(10.6, 5.3), {}, 732, 4, "P100 data sheet, NVLink; L2: Pascal white paper"),
    P("P100 PCIe 16GB", r"\bp100 pcie( 16gb)?$", "6.0", 56, 1303, V(9.3, 4.7), {}, 732, 4, "P100 data sheet, PCIe; L2: Pascal white paper"),
    P("P100 PCIe 12GB", r"\bp100 pcie 12gb$", "6.0", 56, 1303, V(9.3, 4.7), {}, 549, None, "P100 data sheet, PCIe"),
    P("GeForce GTX 1080 Ti", r"gtx 1080 ti$", "6.1", 28, 1582, V(11.3), {}, 484, 2.75, "GeForce GTX 1080 Ti specifications; float32: cores x clock"),
    # Volta.
    P("V100S PCIe", r"v100s", "7.0", 80, 1597, V(16.4, 8.2), M(float16=130), 1134, 6, "V100S data sheet; L2: Volta white paper"),
    P("V100 PCIe", r"v100 pcie", "7.0", 80, 1380, V(14, 7), M(float16=112), 900, 6, "V100 data sheet; L2: Volta white paper"),
    P("V100 SXM2", r"\bv100( (sxm2|dgxs)( \d+gb)?)?$", "7.0", 80, 1530, V(15.7, 7.8), M(float16=125), 900, 6, "V100 data sheet; L2: Volta white paper; DGX Station data sheet: 500 TFLOPS of four"),
    P("Quadro GV100", r"quadro gv100$", "7.0", 80, 1447, V(14.8, 7.4), M(float16=118.5), 870, 6, "Quadro GV100 data sheet; L2: Volta white paper"),
    # Turing; GeForce at the reference clock, tensor cores with 32 bit accumulation.
    P("T4", r"\bt4\b", "7.5", 40, 1590, V(8.1), M(float16=65, int8=130), 320, 4, "T4 data sheet; bandwidth and L2: Turing white paper"),
    P("Titan RTX", r"titan rtx", "7.5", 72, 1770, V(16.3), M(float16=130.5, int8=261), 672, 6, "Turing white paper"),
    P("Quadro RTX 6000", r"quadro rtx [68]000$", "7.5", 72, 1770, V(16.3), M(float16=130.5, int8=261), 672, 6, "Turing white paper; RTX 8000: the same chip and clock"),
    P("Quadro RTX 5000", r"quadro rtx 5000$", "7.5", 48, 1815, V(11.2), M(float16=89.2), 448, 4, "Quadro RTX 5000 data sheet; L2: Turing white paper"),
    P("GeForce RTX 2080 Ti", r"rtx 2080 ti$", "7.5", 68, 1545, V(13.4), M(float16=53.8, int8=215.2), 616, 5.5, "Turing white paper"),
    P("GeForce RTX 2080 SUPER", r"rtx 2080 super$", "7.5", 48, 1815, V(11.2), M(float16=44.6, int8=178.4), 496, 4, "GeForce RTX 2080 SUPER specifications; arithmetic: units x clock; L2: Turing white paper"),
    P("GeForce RTX 2080", r"rtx 2080$", "7.5", 46, 1710, V(10.1), M(float16=40.3, int8=161.1), 448, 4, "Turing white paper"),
    P("GeForce RTX 2070 SUPER", r"rtx 2070 super$", "7.5", 40, 1770, V(9.1), M(float16=36.2, int8=145), 448, 4, "GeForce RTX 2070 SUPER specifications; arithmetic: units x clock; L2: Turing white paper"),
    P("GeForce RTX 2070", r"rtx 2070$", "7.5", 36, 1620, V(7.5), M(float16=29.9, int8=119.4), 448, 4, "Turing white paper"),
    # Ampere.
    P("A100 80GB PCIe", r"a100( pcie)? 80gb( pcie|$)", "8.0", 108, 1410, V(19.5, 9.7), M(312, float64=19.5, tf32=156, int8=624), 1935, 40, "A100 data sheet; L2: Ampere white paper"),
    P("A100 80GB SXM", r"a100 (sxm4? 80gb|80gb sxm)", "8.0", 108, 1410, V(19.5, 9.7), M(312, float64=19.5, tf32=156, int8=624), 2039, 40, "A100 data sheet; L2: Ampere white paper"),
    P("A100 64GB", r"a100 (sxm4? 64gb|64gb)", "8.0", 124, 1395, V(22.4, 11.2), M(358, float64=22.4, tf32=179, int8=716), 1640, None, "CINECA, Leonardo Booster white paper (arXiv 2307.16885): units, float64, bandwidth; the others: float64 times 2, 16, 32 and 64"),
    P("A100 40GB", r"\ba100( (sxm4?|pcie))?( 40gb)?$|\ba100 pg509 20\d$", "8.0", 108, 1410, V(19.5, 9.7), M(312, float64=19.5, tf32=156, int8=624), 1555, 40, "A100 data sheet; L2: Ampere white paper", gib=40),
    P("A800 80GB PCIe", r"a800( pcie)? 80gb( pcie|$)", "8.0", 108, 1410, V(19.5, 9.7), M(312, float64=19.5, tf32=156, int8=624), 1935, 40, "A800 data sheet: the arithmetic of A100; L2: Ampere white paper"),
    P("A800 80GB SXM", r"a800 (sxm4? 80gb|80gb sxm)", "8.0", 108, 1410, V(19.5, 9.7), M(312, float64=19.5, tf32=156, int8=624), 2039, 40, "A800 data sheet: the arithmetic of A100; L2: Ampere white paper"),
    P("A30", r"\ba30\b", "8.0", 56, 1440, V(10.3, 5.2), M(165, float64=10.3, tf32=82, int8=330), 933, 24, "A30 data sheet"),
    P("A40", r"\ba40\b", "8.6", 84, 1740, V(37.4), M(149.7, tf32=74.8, int8=299.3), 696, 6, "A40 data sheet; L2: GA102 white paper"),
    P("A10", r"\ba10\b", "8.6", 72, 1695, V(31.2), M(125, tf32=62.5, int8=250), 600, 6, "A10 data sheet; L2: GA102 white paper"),
    P("A10G", r"\ba10g\b", "8.6", 80, 1710, V(35), M(70, tf32=35, int8=140), 600, 6, "A10G data sheet (EC2 G5); L2: GA102 white paper"),
    P("RTX A6000", r"rtx a6000$", "8.6", 84, 1800, V(38.7), M(154.8, tf32=77.4, int8=309.7), 768, 6, "GA102 white paper"),
    P("RTX A5000", r"rtx a5000$", "8.6", 64, 1695, V(27.8), M(111.1, tf32=55.5, int8=222.2), 768, 6, "RTX A5000 data sheet, tensor cores half of the sparse figure; L2: GA102 white paper"),
    P("RTX A4000", r"rtx a4000$", "8.6", 48, 1560, V(19.2), M(76.7, tf32=38.3, int8=153.4), 448, 4, "RTX A4000 data sheet, tensor cores half of the sparse figure; L2: GA102 white paper (GA104)"),
    P("GeForce RTX 3090 Ti", r"rtx 3090 ti$", "8.6", 84, 1860, V(40), M(80, tf32=40, int8=320), 1008, 6, "Ada white paper, comparison"),
    P("GeForce RTX 3090", r"rtx 3090$", "8.6", 82, 1695, V(35.6), M(71, tf32=35.6, int8=284), 936, 6, "GA102 white paper"),
    P("GeForce RTX 3080 Ti", r"rtx 3080 ti$", "8.6", 80, 1665, V(34.1), M(68.2, tf32=34.1, int8=272.8), 912, 6, "GeForce RTX 3080 Ti specifications; arithmetic: units x clock; L2: GA102 white paper"),
    P("GeForce RTX 3080", r"rtx 3080$", "8.6", 68, 1710, V(29.8), M(59.5, tf32=29.8, int8=238), 760, 5, "GA102 white paper", gib=10),
    P("GeForce RTX 3070", r"rtx 3070$", "8.6", 46, 1725, V(20.3), M(40.6, tf32=20.3, int8=162.6), 448, 4, "GA102 white paper"),
    P("GeForce RTX 3060", r"rtx 3060$", "8.6", 28, 1777, V(12.7), M(25.5, tf32=12.7, int8=101.9), 360, 3, "GeForce RTX 3060 specifications, 12 GB; arithmetic: units x clock", gib=12),
    # Jetson Orin: tensor cores as those of GA100. The program sees the name "Orin" of all its modules.
    P("Jetson AGX Orin 64GB", r"^(nvidia )?orin( nvgpu)?$", "8.7", 16, 1300, V(5.3), M(42.6, int8=85.2), 204.8, 4, "Jetson AGX Orin technical brief (white paper): float32, int8; 16 bit: half of int8", by_units=True),
    # Ada.
    P("L40S", r"\bl40s\b", "8.9", 142, 2520, V(91.6), M(362.05, tf32=183, float8=733, int8=733), 864, 96, "L40S data sheet; L2: as L40, the same chip (Ada white paper)"),
    P("L40", r"\bl40\b", "8.9", 142, 2490, V(90.5), M(181.05, tf32=90.5, float8=362, int8=362), 864, 96, "L40 data sheet; L2: Ada white paper"),
    P("L4", r"\bl4\b", "8.9", 58, 2040, V(30.3), M(121, tf32=60, float8=242.5, int8=242.5), 300, 48, "L4 data sheet, half of the sparse figures; L2: Ada white paper"),
    P("L20", r"\bl20$", "8.9", 92, 2520, V(59.35), M(118.7, tf32=59.35, float8=237.4, int8=237.4), 864, 96, "L20 data sheet: half of the rate of tensor cores, as L40; figures: units x clock"),
    P("RTX 5000 Ada", r"rtx 5000 ada( generation)?$", "8.9", 100, 2550, V(65.3), M(261.1, tf32=130.6, float8=522.2, int8=522.2), 576, None, "RTX 5000 Ada data sheet, tensor cores half of the sparse figure"),
    P("RTX 4000 Ada", r"rtx 4000 ada( generation)?$", "8.9", 48, 2175, V(26.7), M(106.9, tf32=53.5, float8=213.8, int8=213.8), 360, None, "RTX 4000 Ada data sheet; tensor cores: units x clock"),
    P("RTX 6000 Ada", r"rtx 6000 ada", "8.9", 142, 2505, V(91.1), M(364.2, tf32=182.1, float8=728.5, int8=728.5), 960, 96, "Ada white paper for professionals"),
    P("GeForce RTX 4090", r"rtx 4090$", "8.9", 128, 2520, V(82.6), M(165.2, tf32=82.6, float8=330.3, int8=660.6), 1008, 72, "Ada white paper"),
    P("GeForce RTX 4090 D", r"rtx 4090 d$", "8.9", 114, 2520, V(73.5), M(147.1, tf32=73.5, float8=294.2, int8=588.3), 1008, 72, "GeForce RTX 4090 D specifications; arithmetic: units x clock; L2: Ada white paper (RTX 4090)"),
    P("GeForce RTX 4080 SUPER", r"rtx 4080 super$", "8.9", 80, 2550, V(52.2), M(104.4, tf32=52.2, float8=208.9, int8=417.8), 736, 64, "GeForce RTX 4080 SUPER specifications; arithmetic: units x clock; L2: Ada white paper (AD103)"),
    P("GeForce RTX 4080", r"rtx 4080$", "8.9", 76, 2505, V(48.7), M(97.5, tf32=48.7, float8=194.9, int8=389.9), 716.8, 64, "Ada white paper"),
    P("GeForce RTX 4070 SUPER", r"rtx 4070 super$", "8.9", 56, 2475, V(35.5), M(71, tf32=35.5, float8=141.9, int8=283.9), 504, 48, "GeForce RTX 4070 SUPER specifications; arithmetic: units x clock; L2: Ada white paper (AD104)"),
    P("GeForce RTX 4070", r"rtx 4070$", "8.9", 46, 2475, V(29.1), M(58.3, tf32=29.1, float8=116.6, int8=233.2), 504, 36, "GeForce RTX 4070 specifications; arithmetic: units x clock"),
    P("GeForce RTX 4070 Ti", r"rtx 4070 ti$", "8.9", 60, 2610, V(40.1), M(80.2, tf32=40.1, float8=160.4, int8=320.7), 504, 48, "Ada white paper"),
    # Hopper. Data sheets give tensor figures with sparsity. Tensor work boosts to less than the clock here: 1830 for SXM, 1620 for PCIe.
    P("H100 NVL", r"h100 nvl", "9.0", 132, 1785, V(60, 30), M(835.5, float64=60, tf32=417.5, float8=1670.5, int8=1670.5), 3900, 50, "H100 data sheet, NVL, per GPU; L2: Hopper white paper"),
    P("H100 PCIe", r"h100 pcie|h100 80gb hbm2e", "9.0", 114, 1755, V(51, 26), M(756.5, float64=51, tf32=378, float8=1513, int8=1513), 2000, 50, "H100 data sheet, PCIe; L2: Hopper white paper"),
    P("H100 SXM", r"\bh100( sxm5?)?( 80gb)?( hbm3)?$", "9.0", 132, 1980, V(67, 34), M(989.5, float64=67, tf32=494.5, float8=1979, int8=1979), 3350, 50, "H100 data sheet, SXM; L2: Hopper white paper"),
    P("H800 SXM", r"\bh800( sxm5?)?$", "9.0", 132, 1980, V(67), M(989.5, tf32=494.5, float8=1979, int8=1979), 3350, 50, "H800 data sheet: the arithmetic of H100 SXM but for float64; L2: Hopper white paper"),
    P("H800 PCIe", r"\bh800 pcie$", "9.0", 114, 1755, V(51), M(756.5, tf32=378, float8=1513, int8=1513), 2000, 50, "H800 data sheet: the arithmetic of H100 PCIe but for float64; L2: Hopper white paper"),
    P("H20", r"\bh20$", "9.0", 78, None, V(44, 1), M(148, tf32=74, float8=296, int8=296), 4000, 60, "H20 data sheet", gib=96),
    P("GH200 144GB", r"\bgh200 144g", "9.0", 132, 1980, V(67, 34), M(990, float64=67, tf32=494, float8=1979, int8=1979), 4900, 50, "GH200 data sheet; L2: Hopper white paper"),
    P("GH200 96GB", r"\bgh200\b", "9.0", 132, 1980, V(67, 34), M(990, float64=67, tf32=494, float8=1979, int8=1979), 4000, 50, "GH200 data sheet; L2: Hopper white paper"),
    P("H200 NVL", r"\bh200 nvl", "9.0", 132, 1785, V(60, 30), M(835.5, float64=60, tf32=417.5, float8=1670.5, int8=1670.5), 4800, 50, "H200 data sheet, NVL; L2: Hopper white paper"),
    P("H200 SXM", r"\bh200\b", "9.0", 132, 1980, V(67, 34), M(989.5, float64=67, tf32=494.5, float8=1979, int8=1979), 4800, 50, "H200 data sheet, SXM; L2: Hopper white paper"),
    # Blackwell.
    P("GB200, per GPU", r"\bgb200\b", "10.0", 148, None, V(80, 40), M(2500, float64=40, tf32=1250, float8=5000, int8=5000, float4=10000), 8000, None, "GB200 NVL72 data sheet, by 72"),
    P("GB300, per GPU", r"\bgb300\b", "10.3", 148, None, V(80), M(2500, tf32=1250, float8=5000, float4=15000), 8000, None, "GB300 NVL72 data sheet, by 72"),
    P("B300", r"\bb300\b", "10.3", 148, None, V(75, 1.25), M(2250, float64=1.25, tf32=1125, float8=4500, float4=13500), 8000, None, "HGX B300 data sheet, by 8"),
    P("B200", r"\bb200\b", "10.0", 148, None, V(75, 37), M(2250, float64=37, tf32=1125, float8=4500, int8=4500, float4=9000), 8000, None, "HGX B200 data sheet, by 8; bandwidth: DGX B200 data sheet (HGX: 7.7 TB/s)"),
    P("B100", r"\bb100\b", "10.0", None, None, V(60, 30), M(1750, float64=30, tf32=875, float8=3500, int8=3500, float4=7000), 8000, None, "HGX B100 data sheet, by 8"),
    P("RTX PRO 6000 Blackwell", r"rtx pro 6000 blackwell( workstation| server|$)", "12.0", 188, 2617, V(126), M(503.8, tf32=251.9, float8=1007.6, int8=1007.6, float4=2015.2), 1792, 128, "RTX PRO Blackwell white paper; TF32, 8 and 4 bit: half, twice and four times of it"),
    P("RTX PRO 6000 Blackwell Max-Q", r"rtx pro 6000 blackwell max q", "12.0", 188, 2280, V(110), M(438.9, tf32=219.4, float8=877.8, int8=877.8, float4=1755.5), 1792, 128, "RTX PRO 6000 Blackwell Max-Q data sheet: float32, 4 bit (half of the sparse figure); the others: quarters and halves of it"),
    P("GeForce RTX 5090", r"rtx 5090$", "12.0", 170, 2407, V(104.8), M(209.5, tf32=104.8, float8=419, int8=838, float4=1676), 1792, 96, "RTX Blackwell white paper"),
    P("GeForce RTX 5080", r"rtx 5080$", "12.0", 84, 2617, V(56.3), M(112.6, tf32=56.3, float8=225.1, int8=450.2, float4=900.4), 960, 64, "RTX Blackwell white paper"),
    P("GeForce RTX 5070 Ti", r"rtx 5070 ti$", "12.0", 70, 2452, V(43.9), M(87.9, tf32=43.9, float8=175.8, int8=351.5, float4=703), 896, 48, "RTX Blackwell white paper"),
    P("GeForce RTX 5070", r"rtx 5070$", "12.0", 48, 2512, V(30.9), M(61.7, tf32=30.9, float8=123.5, int8=246.9, float4=493.9), 672, 48, "RTX Blackwell white paper"),
    P("GB10", r"\bgb10$", "12.1", 48, None, V(31), {"float4": 500}, 273, None, "DGX Spark data sheet, 4 bit half of the sparse figure; float32: Hot Chips 2025"),
    P("Jetson AGX Thor T5000", r"^(nvidia )?thor( nvgpu)?$", "11.0", 20, 1570, V(8), {"float8": 517.5, "float4": 1035}, 273, None, "Jetson Thor data sheet, half of the sparse figures; float32: units x clock", by_units=True),
    # AMD: matrix cores also multiply fp32 and fp64 as such.
    P("Radeon RX 7900 XTX", r"radeon rx 7900 xtx$", "gfx1100", None, 2500, V(61.4), M(122.8, int8=122.8), 960, 6, "Radeon RX 7900 XTX specifications: float32, float16; bfloat16, int8: the same rate of WMMA (GPUOpen, white paper on WMMA)"),
    P("MI100", r"\bmi100\b", "gfx908", 120, 1502, V(23.1, 11.5), {"float32": 46.1, "float16": 184.6, "bfloat16": 92.3, "int8": 184.6}, 1228.8, 8, "MI100 data sheet; L2: ROCm GPU specifications"),
    P("MI210", r"\bmi210\b", "gfx90a", 104, 1700, V(22.6, 22.6), M(181, float64=45.3, float32=45.3, int8=181), 1638.4, 8, "MI210 data sheet; L2: ROCm GPU specifications"),
    P("MI250X, per die", r"\bmi250x", "gfx90a", 110, 1700, V(23.95, 23.95), M(191.5, float64=47.85, float32=47.85, int8=191.5), 1638.4, 8, "MI250X data sheet, by 2; L2: ROCm GPU specifications"),
    P("MI250, per die", r"\bmi250\b", "gfx90a", 104, 1700, V(22.65, 22.65), M(181.05, float64=45.25, float32=45.25, int8=181.05), 1638.4, 8, "MI250 data sheet, by 2; L2: ROCm GPU specifications"),
    P("MI300A", r"\bmi300a", "gfx942", 228, 2100, V(122.6, 61.3), M(980.6, float64=122.6, float32=122.6, tf32=490.3, float8=1961.2, int8=1961.2), 5300, 24, "MI300A data sheet; L2: ROCm GPU specifications"),
    P("MI300X", r"\bmi300x", "gfx942", 304, 2100, V(163.4, 81.7), M(1307.4, float64=163.4, float32=163.4, tf32=653.7, float8=2614.9, int8=2614.9), 5300, 32, "MI300X data sheet; L2: ROCm GPU specifications"),
    P("MI325X", r"\bmi325x", "gfx942", 304, 2100, V(163.4, 81.7), M(1307.4, float64=163.4, float32=163.4, tf32=653.7, float8=2614.9, int8=2614.9), 6000, 32, "MI325X data sheet; L2: ROCm GPU specifications"),
    P("MI350X", r"\bmi350x", "gfx950", 256, 2200, V(144.2, 72.1), M(2306.9, float64=72.1, float32=144.2, float8=4614, int8=4614, float4=9228), 8000, 32, "MI350X brochure; float4: 9.2 PFLOPS on AMD's page, twice of float8; L2: ROCm GPU specifications"),
    P("MI355X", r"\bmi355x", "gfx950", 256, 2400, V(157.3, 78.6), M(2516.6, float64=78.6, float32=157.3, float8=5033.2, int8=5033.2, float4=10066.4), 8000, 32, "MI355X data sheet; L2: ROCm GPU specifications"),
]

# Where the figures of a row have been compared: copies of the makers' data sheets, tables in other programs that cite them,
# data bases. What is not named here stands or falls with units x clock x operations per clock, which the tests compare.
LOOKED_UP = {
    "V100S PCIe": "arithmetic: PyTorch Lightning, MosaicML Composer (V100 data sheet)",
    "V100 PCIe": "arithmetic: PyTorch Lightning, MosaicML Composer (V100 data sheet)",
    "V100 SXM2": "arithmetic: PyTorch Lightning, MosaicML Composer (V100 data sheet); clock and bandwidth: a recording (898 GB/s)",
    "T4": "arithmetic: PyTorch Lightning, MosaicML Composer (T4 data sheet); bandwidth, L2, clock: sysrqmts.com",
    "Quadro RTX 5000": "arithmetic: PyTorch Lightning (data sheet)",
    "GeForce RTX 2080 Ti": "units, clock: bit-tech.net (white paper); bandwidth: 3dfxzone.it",
    "GeForce RTX 2080": "units, clock: bit-tech.net (white paper); bandwidth: 3dfxzone.it",
    "GeForce RTX 2070": "units, clock: bit-tech.net (white paper)",
    "A100 80GB PCIe": "arithmetic: PyTorch Lightning, glennklockwood.com (A100 data sheet)",
    "A100 80GB SXM": "all: glennklockwood.com (A100 data sheet)",
    "A100 40GB": "all: glennklockwood.com (A100 data sheet)",
    "A30": "float16: calwoo.github.io",
    "A40": "all: ecer.com (copy of the data sheet), hmc-tech.com",
    "A10": "arithmetic: MosaicML Composer (A10 data sheet); int8: citsjtu2020/LLM-Prof; bandwidth, L2, clock: sysrqmts.com",
    "RTX A6000": "float16, int8, bandwidth: hahnyuan/LLM-Viewer (white paper)",
    "GeForce RTX 3090 Ti": "float32: calwoo.github.io; bandwidth, units: screenhacker.com",
    "GeForce RTX 3090": "units, clock, float32, float16, bandwidth, L2: holynerdvana.com",
    "GeForce RTX 3080": "units, clock, bandwidth: alldbin.com",
    "GeForce RTX 3070": "units, clock: hydrogengalaxy.com",
    "L40S": "all: mullet.se, store.sourcecode.com (copies of the data sheet); bfloat16: torchtitan",
    "A10G": "all: baseten.co, NVIDIA A10 vs A10G (data sheets)",
    "L20": "units, clock, float32, bandwidth, L2: topcpu.net",
    "GeForce RTX 4070": "units, clock, bandwidth: cpu-gpu.alldbin.com",
    "H20": "arithmetic but TF32, bandwidth: willitrunai.com, zangshuxian.com (has TF32 too); L2: ke60.top",
    "GB300, per GPU": "all: verda.com (GB300 NVL72 architecture); float4, float8 of the rack: vendordeep.com",
    "B300": "all: glennklockwood.com (HGX B300); int8 differs between copies: 0.15 POPS at verda.com, left out",
    "L40": "all: mullet.se (copy of the data sheet); hmc-tech.com has twice of each, as for L40S",
    "L4": "arithmetic: winston-zhang-orz/gpu-specs (L4 data sheet); bandwidth, L2, clock: fpsbench.com",
    "RTX 6000 Ada": "units: store.sourcecode.com; bandwidth: yottalabs.ai",
    "GeForce RTX 4090": "all: waredb.com",
    "GeForce RTX 4080": "units, clock, float32, float16, int8, bandwidth, L2: holynerdvana.com, hmc-tech.com",
    "GeForce RTX 4070 Ti": "units, clock: incpak.com; bandwidth: guru3d.com",
    "H100 NVL": "bfloat16: torchtitan",
    "H100 PCIe": "all: hpctech.co.jp (copy of the data sheet), MosaicML Composer",
    "H100 SXM": "all: hpctech.co.jp (copy of the data sheet), MosaicML Composer",
    "GH200 96GB": "units, clock: mredenti/PowerCapping (read from the device)",
    "H200 NVL": "bandwidth: aiwiki.ai",
    "H200 SXM": "all: MosaicML Composer (H200 data sheet), itkb.uw.cz",
    "GB200, per GPU": "all: zdszero.github.io (copy of the data sheet)",
    "B200": "all: zdszero.github.io (copy of the data sheet; TF32 rounded to 1100 there); bfloat16: torchtitan",
    "B100": "arithmetic: hmc-tech.com",
    "RTX PRO 6000 Blackwell": "all: hmc-tech.com; bandwidth: yottalabs.ai",
    "GeForce RTX 5090": "all: hmc-tech.com, Linux Format 5/2025",
    "GeForce RTX 5080": "units, clock, float32, float4: hmc-tech.com",
    "GeForce RTX 5070 Ti": "units, clock, bandwidth: topcpu.net",
    "GeForce RTX 5070": "clock: topcpu.net",
    "GB10": "float32, float4, units: afnnews.qaasid.com (Hot Chips), dgx-spark.warehack.ing; bandwidth: kubesimplify.com",
    "Jetson AGX Thor T5000": "units, clock, float4: torring.dev",
    "Radeon RX 7900 XTX": "float32, float16, bandwidth, L2: fpsbench.com",
    "MI100": "float64, float32: diarioti.com; float16, bandwidth, L2: LLM hardware tables that cite amd.com, one of which has 92.3 for int8",
    "MI210": "arithmetic: hmc-tech.com (one die of MI250)",
    "MI250X, per die": "all: zexron.com (AMD's announcement), torchtitan; L2: siliconcat.net",
    "MI250, per die": "all: zexron.com (AMD's announcement), hmc-tech.com",
    "MI300A": "arithmetic: hmc-tech.com",
    "MI300X": "float16, float8, float32, bandwidth: AMD's own roofline tables; L2: ROCm GPU specifications",
    "MI325X": "float16, float8, float32, bandwidth: AMD's own roofline tables; L2: ROCm GPU specifications",
    "MI350X": "units, L2: ROCm GPU specifications; bandwidth: gangliao.me",
    "MI355X": "float16, float8, float4, bandwidth: AMD's own roofline tables; units, L2: ROCm GPU specifications",
}

# Operations per clock of one multiprocessor, for GPUs that are not in the table. Source: CUDA C++ Programming Guide (throughput
# of arithmetic instructions) and the white papers; each entry is checked against the rows above.
PER_CLOCK: dict[str, tuple[dict[str, int], dict[str, int]]] = {
    "6.0": ({"float64": 64, "float32": 128}, {}),
    "6.1": ({"float64": 8, "float32": 256}, {}),
    "7.0": ({"float64": 64, "float32": 128}, {"float16": 1024}),
    "7.5": ({"float64": 4, "float32": 128}, {"float16": 1024, "int8": 2048}),
    "8.0": ({"float64": 64, "float32": 128}, {"float64": 128, "tf32": 1024, "float16": 2048, "bfloat16": 2048, "int8": 4096}),
    "8.6": ({"float64": 4, "float32": 256}, {"tf32": 512, "float16": 1024, "bfloat16": 1024, "int8": 2048}),
    "8.7": ({"float64": 4, "float32": 256}, {"tf32": 1024, "float16": 2048, "bfloat16": 2048, "int8": 4096}),
    "8.9": ({"float64": 4, "float32": 256}, {"tf32": 512, "float16": 1024, "bfloat16": 1024, "float8": 2048, "int8": 2048}),
    "9.0": ({"float64": 128, "float32": 256}, {"float64": 256, "tf32": 2048, "float16": 4096, "bfloat16": 4096, "float8": 8192, "int8": 8192}),
    "10.0": ({"float64": 128, "float32": 256}, {"tf32": 4096, "float16": 8192, "bfloat16": 8192, "float8": 16384, "int8": 16384, "float4": 32768}),
    "12.0": ({"float64": 4, "float32": 256}, {"tf32": 512, "float16": 1024, "bfloat16": 1024, "float8": 2048, "int8": 2048, "float4": 4096}),
}
# fmt: on
HALF_ON_GEFORCE = frozenset({"tf32", "float16", "bfloat16", "float8"})  # those that accumulate in 32 bits
