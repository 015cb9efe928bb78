# SPDX-License-Identifier: Apache-2.0
"""Operations per clock of a processor's core, and the memory of its socket: the table behind `cpus.py`.

Operations per clock of one core: units that multiply and add, times elements of their width, times 2. A type maps
the instructions that it needs (Linux's names, as in /proc/cpuinfo) to operations per clock; the first that the
processor has counts, so that a machine which hides some is measured by those it shows. Half of float32 is float64.
Memory: channels of a socket times transfers of 8 bytes, with the fastest memory that the maker supports and every
channel in use, which the system does not report. Processors with different cores (hybrid ones) are left out. Add
one: one row.

`status` says where the operations per clock were looked up: "checked" in the named source or by measurement, "from
memory" if they have not been looked up since.
"""

from __future__ import annotations

from typing import NamedTuple

Rates = dict[str, int]  # instructions -> operations per clock


class Core(NamedTuple):
    """One row: cores of one design in one kind of socket."""

    name: str
    id: str  # regular expression on vendor, family, model and stepping, or on implementer and part
    float32: Rates
    matrix: dict[str, Rates]  # by type: instructions only for products
    channels: int | None  # None: sold with several kinds of memory
    mts: int | None  # megatransfers per second
    most_cores: int | None  # of a socket
    status: str
    source: str
    half: str = ""  # names of products that have one AVX-512 unit instead of two


_AVX2 = {"fma": 32}
_AVX512 = {"avx512f": 64, "fma": 32}
_VNNI = {"int8": {"avx512_vnni": 256}}
_AMX = {
    "bfloat16": {"amx_bf16": 1024, "avx512_bf16": 128},
    "int8": {"amx_int8": 2048, "avx512_vnni": 256},
    "float16": {"amx_fp16": 1024, "avx512_fp16": 128},
}
# BFMMLA (SMMLA) multiplies 2x4 by 4x2 (2x8 by 8x2) in 128 bits: 16 (32) multiply-adds of a pipe. SDOT: 16.
_TWO_PIPES = {"float16": {"asimdhp": 32}, "bfloat16": {"bf16": 64}, "int8": {"i8mm": 128, "asimddp": 64}}
_FOUR_PIPES = {"float16": {"asimdhp": 64}, "bfloat16": {"bf16": 128}, "int8": {"i8mm": 256, "asimddp": 128}}
_ONE_UNIT = r"Bronze|Silver|Gold 5[12](?!22)"
_INTEL = "Intel 64 and IA-32 Architectures Optimization Reference Manual"

# fmt: off
# ruff: noqa: E501  (one row per line)
CORES = [
    Core("Haswell-EP", r"GenuineIntel 6 63\b", _AVX2, {}, 4, 2133, 18, "checked", f"{_INTEL}; stackoverflow.com/q/15655835"),
    Core("Broadwell-EP", r"GenuineIntel 6 79\b", _AVX2, {}, 4, 2400, 24, "checked", f"{_INTEL}; stackoverflow.com/q/15655835"),
    Core("Skylake-SP", r"GenuineIntel 6 85( [0-4])?$", _AVX512, {}, 6, 2666, 28, "checked", "microway.com, detailed specifications of Skylake-SP: 16 float64 per clock and AVX-512 unit, two units, one in Gold 51xx and below", _ONE_UNIT),
    Core("Cascade Lake", r"GenuineIntel 6 85 [5-9]$", _AVX512, _VNNI, 6, 2933, 28, "from memory", _INTEL, _ONE_UNIT),
    Core("Ice Lake-SP", r"GenuineIntel 6 (106|108)\b", _AVX512, _VNNI, 8, 3200, 40, "from memory", _INTEL),
    Core("Sapphire Rapids", r"GenuineIntel 6 143\b", _AVX512, _AMX, 8, 4800, 60, "checked", f"{_INTEL}; Intel, Accelerate AI Workloads with Intel AMX: 1024 (bf16) and 2048 (int8) per clock; avx512_bf16 (where AMX is off) from memory: twice float32"),
    Core("Emerald Rapids", r"GenuineIntel 6 207\b", _AVX512, _AMX, 8, 5600, 64, "from memory", "as Sapphire Rapids"),
    Core("Granite Rapids", r"GenuineIntel 6 17[34]\b", _AVX512, _AMX, 12, 6400, 128, "from memory", "as Sapphire Rapids"),
    Core("Sierra Forest", r"GenuineIntel 6 175\b", {"fma": 16}, {"int8": {"avx_vnni": 64}}, 8, 6400, 144, "from memory", f"{_INTEL}: 2 units of 128 bits (Crestmont), multiply-adds and VPDPBUSD; Xeon 6700E"),
    Core("Zen 2, EPYC 7002", r"AuthenticAMD 23 49\b", _AVX2, {}, 8, 3200, 64, "checked", "2 units of 256 bits: wlog.flatlib.jp, 2024-01-13, measured"),
    Core("Zen 2, Ryzen 3000", r"AuthenticAMD 23 113\b", _AVX2, {}, 2, 3200, 16, "checked", "2 units of 256 bits: wlog.flatlib.jp, 2024-01-13, measured"),
    Core("Zen 3, EPYC 7003", r"AuthenticAMD 25 1\b", _AVX2, {}, 8, 3200, 64, "checked", "2 units of 256 bits: wlog.flatlib.jp, 2024-01-13, measured"),
    Core("Zen 3, Ryzen 5000", r"AuthenticAMD 25 33\b", _AVX2, {}, 2, 3200, 16, "checked", "2 units of 256 bits: wlog.flatlib.jp, 2024-01-13, measured"),
    Core("Zen 4, EPYC 9004", r"AuthenticAMD 25 (17|16[0-9]|17[0-5])\b", _AVX2, {"bfloat16": {"avx512_bf16": 64}, "int8": {"avx512_vnni": 128}}, 12, 4800, 128, "checked", "256 bit units, twice for AVX-512: numberworld.org, Zen 4 and Zen 5 teardowns"),
    Core("Zen 4, Ryzen 7000", r"AuthenticAMD 25 97\b", _AVX2, {"bfloat16": {"avx512_bf16": 64}, "int8": {"avx512_vnni": 128}}, 2, 5200, 16, "checked", "256 bit units, twice for AVX-512: numberworld.org, Zen 4 and Zen 5 teardowns"),
    Core("Zen 5, EPYC 9005", r"AuthenticAMD 26 (2|17)\b", _AVX512, {"bfloat16": {"avx512_bf16": 128}, "int8": {"avx512_vnni": 256}}, 12, 6000, 192, "checked", "512 bit units: numberworld.org, Zen 5 teardown; measured: 2.0 VFMADD231PS, 1.9 VDPBF16PS, 2.0 VPDPBUSD per clock"),
    Core("Zen 5, Ryzen 9000", r"AuthenticAMD 26 68\b", _AVX512, {"bfloat16": {"avx512_bf16": 128}, "int8": {"avx512_vnni": 256}}, 2, 5600, 16, "checked", "as Zen 5, EPYC 9005"),
    Core("Neoverse N1", r"0x41 0xd0c\b", {"asimd": 16}, {"float16": {"asimdhp": 32}, "int8": {"asimddp": 64}}, 8, 3200, 128, "from memory", "Arm Neoverse N1 Software Optimization Guide: 2 pipes of 128 bits"),
    Core("Neoverse V1", r"0x41 0xd40\b", {"asimd": 32}, _FOUR_PIPES, 8, 4800, 64, "checked", "fuse.wikichip.org, Neoverse N2 and V1: 2 pipes of 256 bits (SVE), or 4 of 128; bf16, i8mm on each: Arm Neoverse V1 Software Optimization Guide (from memory); memory of Graviton 3"),
    Core("Neoverse N2", r"0x41 0xd49\b", {"asimd": 16}, _TWO_PIPES, None, None, None, "from memory", "Arm Neoverse N2 Software Optimization Guide: 2 pipes of 128 bits, bf16 and i8mm on each"),
    Core("Neoverse V2", r"0x41 0xd4f\b", {"asimd": 32}, _FOUR_PIPES, None, None, None, "from memory", "Arm Neoverse V2 Software Optimization Guide: 4 pipes of 128 bits, bf16 and i8mm on each"),
]
# fmt: on
