# SPDX-License-Identifier: Apache-2.0
"""Peaks of GPUs: the table behind `gpus.py`, one row per product.

Teraflops (1e12 per second; a fused multiply-add is 2) without sparsity, bandwidth in 1e9 bytes per second, L2 in MiB. Where
a maker prints figures with 2:4 sparsity only, the dense one is half of it. 16 bit and fp8 rates are those with an accumulator
of 32 bits, which is what PyTorch's libraries use: half of the headline on GeForce. A figure that the source does not give is
not there. Multiprocessors and boost clock are there to check the figures: units x clock x operations per clock. `source` is
the maker's document that prints the figures; LOOKED_UP says which have been looked up, and where.
MI250X and MI250 are two devices to the program: the rows hold half of the board's figures. So do the halves of GB200.
Add a GPU: one row, and one in LOOKED_UP once you have compared its figures with another source. The first pattern that fits the device's name wins.
"""

from __future__ import annotations

from typing import NamedTuple


class Product(NamedTuple):
    """One row. `vector` and `matrix`: TFLOP/s by type, on plain lanes and on tensor or matrix cores."""

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


def V(fp32: float, fp64: float | None = None) -> dict[str, float]:
    return {"float32": fp32} | ({} if fp64 is None else {"float64": fp64})


def M(half: float | None = None, **types: float) -> dict[str, float]:
    """`half` stands for float16 and bfloat16."""
    return ({} if half is None else {"float16": half, "bfloat16": half}) | types


P = Product

# fmt: off
# ruff: noqa: E501  (one row per line)
PRODUCTS = [
    # Volta.
    P("V100S PCIe", r"v100s", "7.0", 80, 1597, V(16.4, 8.2), M(float16=130), 1134, 6, "V100S data sheet; L2: Volta white paper"),
    P("V100 PCIe", r"v100 pcie", "7.0", 80, 1380, V(14, 7), M(float16=112), 900, 6, "V100 data sheet; L2: Volta white paper"),
    P("V100 SXM2", r"v100( sxm\d| dgxs|$)", "7.0", 80, 1530, V(15.7, 7.8), M(float16=125), 900, 6, "V100 data sheet; L2: Volta white paper; DGX Station data sheet: 500 TFLOPS of four"),
    # Turing; GeForce at the reference clock, tensor cores with 32 bit accumulation.
    P("T4", r"\bt4\b", "7.5", 40, 1590, V(8.1), M(float16=65, int8=130), 320, 4, "T4 data sheet; bandwidth and L2: Turing white paper"),
    P("Titan RTX", r"titan rtx", "7.5", 72, 1770, V(16.3), M(float16=130.5, int8=261), 672, 6, "Turing white paper"),
    P("Quadro RTX 6000", r"quadro rtx [68]000", "7.5", 72, 1770, V(16.3), M(float16=130.5, int8=261), 672, 6, "Turing white paper; RTX 8000: the same chip and clock"),
    P("Quadro RTX 5000", r"quadro rtx 5000", "7.5", 48, 1815, V(11.2), M(float16=89.2), 448, 4, "Quadro RTX 5000 data sheet; L2: Turing white paper"),
    P("GeForce RTX 2080 Ti", r"rtx 2080 ti$", "7.5", 68, 1545, V(13.4), M(float16=53.8, int8=215.2), 616, 5.5, "Turing white paper"),
    P("GeForce RTX 2080", r"rtx 2080$", "7.5", 46, 1710, V(10.1), M(float16=40.3, int8=161.1), 448, 4, "Turing white paper"),
    P("GeForce RTX 2070", r"rtx 2070$", "7.5", 36, 1620, V(7.5), M(float16=29.9, int8=119.4), 448, 4, "Turing white paper"),
    # Ampere.
    P("A100 80GB PCIe", r"a100( pcie)? 80gb( pcie|$)", "8.0", 108, 1410, V(19.5, 9.7), M(312, float64=19.5, tf32=156, int8=624), 1935, 40, "A100 data sheet; L2: Ampere white paper"),
    P("A100 80GB SXM", r"a100 (sxm4 80gb|80gb sxm)", "8.0", 108, 1410, V(19.5, 9.7), M(312, float64=19.5, tf32=156, int8=624), 2039, 40, "A100 data sheet; L2: Ampere white paper"),
    P("A100 40GB", r"\ba100\b", "8.0", 108, 1410, V(19.5, 9.7), M(312, float64=19.5, tf32=156, int8=624), 1555, 40, "A100 data sheet; L2: Ampere white paper"),
    P("A30", r"\ba30\b", "8.0", 56, 1440, V(10.3, 5.2), M(165, float64=10.3, tf32=82, int8=330), 933, 24, "A30 data sheet"),
    P("A40", r"\ba40\b", "8.6", 84, 1740, V(37.4), M(149.7, tf32=74.8, int8=299.3), 696, 6, "A40 data sheet; L2: GA102 white paper"),
    P("A10", r"\ba10\b", "8.6", 72, 1695, V(31.2), M(125, tf32=62.5, int8=250), 600, 6, "A10 data sheet; L2: GA102 white paper"),
    P("RTX A6000", r"rtx a6000", "8.6", 84, 1800, V(38.7), M(154.8, tf32=77.4, int8=309.7), 768, 6, "GA102 white paper"),
    P("GeForce RTX 3090 Ti", r"rtx 3090 ti$", "8.6", 84, 1860, V(40), M(80, tf32=40, int8=320), 1008, 6, "Ada white paper, comparison"),
    P("GeForce RTX 3090", r"rtx 3090$", "8.6", 82, 1695, V(35.6), M(71, tf32=35.6, int8=284), 936, 6, "GA102 white paper"),
    P("GeForce RTX 3080", r"rtx 3080$", "8.6", 68, 1710, V(29.8), M(59.5, tf32=29.8, int8=238), 760, 5, "GA102 white paper"),
    P("GeForce RTX 3070", r"rtx 3070$", "8.6", 46, 1725, V(20.3), M(40.6, tf32=20.3, int8=162.6), 448, 4, "GA102 white paper"),
    # Ada.
    P("L40S", r"\bl40s\b", "8.9", 142, 2520, V(91.6), M(362.05, tf32=183, float8=733, int8=733), 864, None, "L40S data sheet"),
    P("L40", r"\bl40\b", "8.9", 142, 2490, V(90.5), M(181.05, tf32=90.5, float8=362, int8=362), 864, 96, "L40 data sheet; L2: Ada white paper"),
    P("L4", r"\bl4\b", "8.9", 58, 2040, V(30.3), M(121, tf32=60, float8=242.5, int8=242.5), 300, 48, "L4 data sheet, half of the sparse figures; L2: Ada white paper"),
    P("RTX 6000 Ada", r"rtx 6000 ada", "8.9", 142, 2505, V(91.1), M(364.2, tf32=182.1, float8=728.5, int8=728.5), 960, 96, "Ada white paper for professionals"),
    P("GeForce RTX 4090", r"rtx 4090$", "8.9", 128, 2520, V(82.6), M(165.2, tf32=82.6, float8=330.3, int8=660.6), 1008, 72, "Ada white paper"),
    P("GeForce RTX 4080", r"rtx 4080$", "8.9", 76, 2505, V(48.7), M(97.5, tf32=48.7, float8=194.9, int8=389.9), 716.8, 64, "Ada white paper"),
    P("GeForce RTX 4070 Ti", r"rtx 4070 ti$", "8.9", 60, 2610, V(40.1), M(80.2, tf32=40.1, float8=160.4, int8=320.7), 504, 48, "Ada white paper"),
    # Hopper. Data sheets give tensor figures with sparsity. Tensor work boosts to less than the clock here: 1830 for SXM, 1620 for PCIe.
    P("H100 NVL", r"h100 nvl", "9.0", 132, 1785, V(60, 30), M(835.5, float64=60, tf32=417.5, float8=1670.5, int8=1670.5), 3900, 50, "H100 data sheet, NVL, per GPU; L2: Hopper white paper"),
    P("H100 PCIe", r"h100 pcie|h100 80gb hbm2e", "9.0", 114, 1755, V(51, 26), M(756.5, float64=51, tf32=378, float8=1513, int8=1513), 2000, 50, "H100 data sheet, PCIe; L2: Hopper white paper"),
    P("H100 SXM", r"\bh100( sxm5?)?( 80gb)?( hbm3)?$", "9.0", 132, 1980, V(67, 34), M(989.5, float64=67, tf32=494.5, float8=1979, int8=1979), 3350, 50, "H100 data sheet, SXM; L2: Hopper white paper"),
    P("GH200 144GB", r"\bgh200 144g", "9.0", 132, 1980, V(67, 34), M(990, float64=67, tf32=494, float8=1979, int8=1979), 4900, 50, "GH200 data sheet; L2: Hopper white paper"),
    P("GH200 96GB", r"\bgh200\b", "9.0", 132, 1980, V(67, 34), M(990, float64=67, tf32=494, float8=1979, int8=1979), 4000, 50, "GH200 data sheet; L2: Hopper white paper"),
    P("H200 NVL", r"\bh200 nvl", "9.0", 132, 1785, V(60, 30), M(835.5, float64=60, tf32=417.5, float8=1670.5, int8=1670.5), 4800, 50, "H200 data sheet, NVL; L2: Hopper white paper"),
    P("H200 SXM", r"\bh200\b", "9.0", 132, 1980, V(67, 34), M(989.5, float64=67, tf32=494.5, float8=1979, int8=1979), 4800, 50, "H200 data sheet, SXM; L2: Hopper white paper"),
    # Blackwell.
    P("GB200, per GPU", r"\bgb200\b", "10.0", 148, None, V(80, 40), M(2500, float64=40, tf32=1250, float8=5000, int8=5000, float4=10000), 8000, None, "GB200 NVL72 data sheet, by 72"),
    P("B200", r"\bb200\b", "10.0", 148, None, V(75, 37), M(2250, float64=37, tf32=1125, float8=4500, int8=4500, float4=9000), 8000, None, "HGX B200 data sheet, by 8; bandwidth: DGX B200 data sheet (HGX: 7.7 TB/s)"),
    P("B100", r"\bb100\b", "10.0", None, None, V(60, 30), M(1750, float64=30, tf32=875, float8=3500, int8=3500, float4=7000), 8000, None, "HGX B100 data sheet, by 8"),
    P("RTX PRO 6000 Blackwell", r"rtx pro 6000 blackwell( workstation| server|$)", "12.0", 188, 2617, V(126), M(503.8, tf32=251.9, float8=1007.6, int8=1007.6, float4=2015.2), 1792, 128, "RTX PRO Blackwell white paper; TF32, 8 and 4 bit: half, twice and four times of it"),
    P("GeForce RTX 5090", r"rtx 5090$", "12.0", 170, 2407, V(104.8), M(209.5, tf32=104.8, float8=419, int8=838, float4=1676), 1792, 96, "RTX Blackwell white paper"),
    P("GeForce RTX 5080", r"rtx 5080$", "12.0", 84, 2617, V(56.3), M(112.6, tf32=56.3, float8=225.1, int8=450.2, float4=900.4), 960, 64, "RTX Blackwell white paper"),
    P("GeForce RTX 5070 Ti", r"rtx 5070 ti$", "12.0", 70, 2452, V(43.9), M(87.9, tf32=43.9, float8=175.8, int8=351.5, float4=703), 896, 48, "RTX Blackwell white paper"),
    P("GeForce RTX 5070", r"rtx 5070$", "12.0", 48, 2512, V(30.9), M(61.7, tf32=30.9, float8=123.5, int8=246.9, float4=493.9), 672, 48, "RTX Blackwell white paper"),
    # AMD: matrix cores also multiply fp32 and fp64 as such.
    P("MI100", r"\bmi100\b", "gfx908", 120, 1502, V(23.1, 11.5), {"float32": 46.1, "float16": 184.6, "bfloat16": 92.3, "int8": 184.6}, 1228.8, 8, "MI100 data sheet; L2: ROCm GPU specifications"),
    P("MI210", r"\bmi210\b", "gfx90a", 104, 1700, V(22.6, 22.6), M(181, float64=45.3, float32=45.3, int8=181), 1638.4, 8, "MI210 data sheet; L2: ROCm GPU specifications"),
    P("MI250X, per die", r"\bmi250x", "gfx90a", 110, 1700, V(23.95, 23.95), M(191.5, float64=47.85, float32=47.85, int8=191.5), 1638.4, 8, "MI250X data sheet, by 2; L2: ROCm GPU specifications"),
    P("MI250, per die", r"\bmi250\b", "gfx90a", 104, 1700, V(22.65, 22.65), M(181.05, float64=45.25, float32=45.25, int8=181.05), 1638.4, 8, "MI250 data sheet, by 2; L2: ROCm GPU specifications"),
    P("MI300A", r"\bmi300a", "gfx942", 228, 2100, V(122.6, 61.3), M(980.6, float64=122.6, float32=122.6, tf32=490.3, float8=1961.2, int8=1961.2), 5300, 24, "MI300A data sheet; L2: ROCm GPU specifications"),
    P("MI300X", r"\bmi300x", "gfx942", 304, 2100, V(163.4, 81.7), M(1307.4, float64=163.4, float32=163.4, tf32=653.7, float8=2614.9, int8=2614.9), 5300, 32, "MI300X data sheet; L2: ROCm GPU specifications"),
    P("MI325X", r"\bmi325x", "gfx942", 304, 2100, V(163.4, 81.7), M(1307.4, float64=163.4, float32=163.4, tf32=653.7, float8=2614.9, int8=2614.9), 6000, 32, "MI325X data sheet; L2: ROCm GPU specifications"),
    P("MI350X", r"\bmi350x", "gfx950", 256, 2200, V(144.2, 72.1), M(2306.9, float64=72.1, float32=144.2, float8=4614, int8=4614), 8000, 32, "MI350X brochure; L2: ROCm GPU specifications"),
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
    "7.0": ({"float64": 64, "float32": 128}, {"float16": 1024}),
    "7.5": ({"float64": 4, "float32": 128}, {"float16": 1024, "int8": 2048}),
    "8.0": ({"float64": 64, "float32": 128}, {"float64": 128, "tf32": 1024, "float16": 2048, "bfloat16": 2048, "int8": 4096}),
    "8.6": ({"float64": 4, "float32": 256}, {"tf32": 512, "float16": 1024, "bfloat16": 1024, "int8": 2048}),
    "8.9": ({"float64": 4, "float32": 256}, {"tf32": 512, "float16": 1024, "bfloat16": 1024, "float8": 2048, "int8": 2048}),
    "9.0": ({"float64": 128, "float32": 256}, {"float64": 256, "tf32": 2048, "float16": 4096, "bfloat16": 4096, "float8": 8192, "int8": 8192}),
    "10.0": ({"float64": 128, "float32": 256}, {"tf32": 4096, "float16": 8192, "bfloat16": 8192, "float8": 16384, "int8": 16384, "float4": 32768}),
    "12.0": ({"float64": 4, "float32": 256}, {"tf32": 512, "float16": 1024, "bfloat16": 1024, "float8": 2048, "int8": 2048, "float4": 4096}),
}
# fmt: on
HALF_ON_GEFORCE = frozenset({"tf32", "float16", "bfloat16", "float8"})  # those that accumulate in 32 bits
