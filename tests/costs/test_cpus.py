# SPDX-License-Identifier: Apache-2.0
"""Peaks of processors, from facts as the capture records them."""

from __future__ import annotations

import re

import pytest

from pyprof.capture.environment import processor
from pyprof.costs.hardware import cpus
from pyprof.costs.hardware.cpu_table import CORES
from pyprof.costs.hardware.cpus import Cpu


def facts(id: str, isa: str, **more: str) -> dict[str, str]:
    base = {
        "cpu.mhz": "2000",
        "cpu.mhz.is": "maximum",
        "cpu.cores": "8",
        "cpu.sockets": "1",
        "threads.intraop": "8",
    }
    changes = {name.replace("__", "."): value for name, value in more.items()}
    return {"cpu.id": id, "cpu.isa": isa, **base, **changes}


SKYLAKE = "avx2,fma,avx512f"
SAPPHIRE = "avx2,fma,avx512f,avx512_bf16,avx512_vnni,avx512_fp16,amx_bf16,amx_int8"
# GFLOP/s at 8 cores · 2 GHz = 16e9 clocks: float32, bfloat16 product, int8 product, GB/s.
MACHINES = [
    ("GenuineIntel 6 85 4", SKYLAKE, {}, "Skylake-SP", 64 * 16, 64 * 16, None, 6 * 2.666 * 8),
    ("GenuineIntel 6 85 4", SKYLAKE, {"cpu__name": "Xeon Silver 4110"}, "Skylake-SP", 32 * 16, 32 * 16, None, None),
    ("GenuineIntel 6 85 4", SKYLAKE, {"cpu__name": "Xeon Gold 5118"}, "Skylake-SP", 32 * 16, 32 * 16, None, None),
    ("GenuineIntel 6 85 4", SKYLAKE, {"cpu__name": "Xeon Gold 5122"}, "Skylake-SP", 64 * 16, 64 * 16, None, None),
    ("GenuineIntel 6 85 4", SKYLAKE, {"cpu__name": "Xeon Gold 6148"}, "Skylake-SP", 64 * 16, 64 * 16, None, None),
    ("GenuineIntel 6 85 4", "avx2,fma", {"cpu__name": "Xeon Silver"}, "Skylake-SP", 32 * 16, 32 * 16, None, None),
    ("GenuineIntel 6 85 7", SKYLAKE + ",avx512_vnni", {}, "Cascade Lake", 64 * 16, 64 * 16, 256 * 16, 6 * 2.933 * 8),
    ("GenuineIntel 6 143 8", SAPPHIRE, {}, "Sapphire Rapids", 64 * 16, 1024 * 16, 2048 * 16, 8 * 4.8 * 8),
    ("GenuineIntel 6 143 8", SAPPHIRE.partition(",amx")[0], {}, "Sapphire Rapids", 64 * 16, 128 * 16, 256 * 16, None),
    ("GenuineIntel 6 143 8", SKYLAKE, {}, "Sapphire Rapids", 64 * 16, 64 * 16, None, None),
    ("GenuineIntel 6 175 3", "avx2,fma,avx_vnni", {}, "Sierra Forest", 16 * 16, 16 * 16, 64 * 16, 8 * 6.4 * 8),
    ("AuthenticAMD 23 49 0", "avx2,fma", {}, "Zen 2, EPYC 7002", 32 * 16, 32 * 16, None, 8 * 3.2 * 8),
    ("AuthenticAMD 25 17 1", SKYLAKE + ",avx512_bf16", {}, "Zen 4, EPYC 9004", 32 * 16, 64 * 16, None, 12 * 4.8 * 8),
    ("AuthenticAMD 26 2 1", SKYLAKE + ",avx512_bf16", {}, "Zen 5, EPYC 9005", 64 * 16, 128 * 16, None, 12 * 6 * 8),
    ("AuthenticAMD 26 2 1", SKYLAKE, {"cpu__sockets": "2"}, "Zen 5, EPYC 9005", 64 * 16, 64 * 16, None, 2 * 12 * 6 * 8),
    ("0x41 0xd0c", "asimd,asimdhp", {}, "Neoverse N1", 16 * 16, 16 * 16, None, 8 * 3.2 * 8),
    # 4 pipes of 128 bits: BFMMLA is 2·4·2 multiply-adds, SMMLA 2·8·2, SDOT 4·4.
    ("0x41 0xd40", "asimd,asimdhp,sve", {}, "Neoverse V1", 32 * 16, 32 * 16, None, 8 * 4.8 * 8),
    ("0x41 0xd40", "asimd,sve,bf16,i8mm", {}, "Neoverse V1", 32 * 16, 4 * 32 * 16, 4 * 64 * 16, None),
    ("0x41 0xd4f", "asimd,asimddp,bf16", {}, "Neoverse V2", 32 * 16, 4 * 32 * 16, 4 * 32 * 16, None),
    ("0x41 0xd49", "asimd,asimddp,bf16,i8mm", {}, "Neoverse N2", 16 * 16, 2 * 32 * 16, 2 * 64 * 16, None),
    ("0x41 0xd0c", "asimd,asimddp", {}, "Neoverse N1", 16 * 16, 16 * 16, 2 * 32 * 16, None),
]  # fmt: skip


@pytest.mark.parametrize(("id", "isa", "more", "name", "single", "half", "int8", "bandwidth"), MACHINES)
def test_peaks_by_hand(id, isa, more, name, single, half, int8, bandwidth):
    cpu = cpus.of(facts(id, isa, **more))
    assert isinstance(cpu, Cpu)
    assert cpu.name == name
    found = [cpu.peak("float32", True), cpu.peak("bfloat16", True), cpu.peak("int8", True)]
    assert found == [single * 1e9, half * 1e9, None if int8 is None else int8 * 1e9]
    assert cpu.peak("float64", False) == single * 1e9 / 2
    assert cpu.peak("bfloat16", False) == single * 1e9, "elementwise arithmetic is done in float32"
    if bandwidth is not None:
        assert cpu.bandwidth == pytest.approx(bandwidth * 1e9)


def test_the_cores_are_those_that_can_work_on_one_operator():
    base = facts("AuthenticAMD 25 1 1", "avx2,fma")
    few, many = cpus.of({**base, "threads.intraop": "2"}), cpus.of({**base, "threads.intraop": "16"})
    assert isinstance(few, Cpu)
    assert isinstance(many, Cpu)
    assert few.vector["float32"] == 2 * 2e9 * 32
    assert many.vector["float32"] == 8 * 2e9 * 32, "threads of one core share its units"
    assert few.least_bandwidth == few.bandwidth * 2 / 64
    assert "2 cores at 2000 MHz (maximum clock)" in few.source
    machine = cpus.of({**base, "cpu.virtual": "yes", "cpu.mhz.is": "nominal", "cpu.cores": "1"})
    assert isinstance(machine, Cpu)
    assert machine.source.endswith("1 core at 2000 MHz (nominal clock), of a virtual machine")


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        (
            {"cpu.id": "GenuineIntel 6 151 2"},
            "processor GenuineIntel 6 151 2 is not in the table of processors",
        ),
        ({"cpu.isa": "avx2"}, "without the instructions"),
        ({"cpu.mhz": ""}, "the recording lacks cpu.mhz"),
        ({"cpu.cores": "none"}, "without the instructions, cores or clock"),
    ],
)
def test_what_cannot_be_derived_is_unknown_with_a_reason(changes, why):
    found = cpus.of({**facts("AuthenticAMD 25 1 1", "avx2,fma"), **changes})
    assert isinstance(found, str)
    assert why in found


def test_memory_that_is_sold_in_several_kinds_is_unknown():
    cpu = cpus.of(facts("0x41 0xd4f", "asimd"))
    assert isinstance(cpu, Cpu)
    assert (cpu.bandwidth, cpu.least_bandwidth) == (None, None)


@pytest.mark.parametrize("core", CORES, ids=lambda core: core.name)
def test_rows_of_the_table_are_whole(core):
    assert core.status in ("checked", "from memory")
    assert core.source
    assert (core.channels is None) == (core.mts is None) == (core.most_cores is None)
    assert not [other for other in CORES if other is not core and other.id == core.id]
    assert all(rate == sorted(rates.values())[-1 - i] for rates in core.matrix.values()
               for i, rate in enumerate(rates.values())), "the fastest instructions come first"  # fmt: skip
    assert set(processor.DECISIVE) >= {name for rates in (core.float32, *core.matrix.values()) for name in rates}


EPYC = """processor\t: 0
vendor_id\t: AuthenticAMD
cpu family\t: 26
model\t\t: 2
model name\t: AMD EPYC
stepping\t: 1
cpu MHz\t\t: 2596.122
flags\t\t: fpu avx2 fma avx512f hypervisor

processor\t: 1
model\t\t: 99
"""
XEON = """vendor_id\t: GenuineIntel
cpu family\t: 6
model\t: 85
model name\t: Intel(R) Xeon(R) Gold 6148 CPU @ 2.40GHz
stepping\t: 4
cpu MHz\t: 1000.0
flags\t: fma avx2
"""


def test_facts_in_the_text_of_linux():
    assert processor.described(EPYC, None) == {
        "cpu.id": "AuthenticAMD 26 2 1", "cpu.isa": "avx2,fma,avx512f", "cpu.virtual": True,
        "cpu.mhz": 2596, "cpu.mhz.is": "nominal",
    }  # fmt: skip
    named = processor.described(XEON, None)
    assert (named["cpu.mhz"], named["cpu.mhz.is"]) == (2400, "nominal"), "the present clock is not the nominal one"
    fast = processor.described(XEON, 3700)
    assert (fast["cpu.mhz"], fast["cpu.mhz.is"]) == (3700, "maximum")
    assert processor.described("", None) == {"cpu.virtual": False}


def test_facts_of_this_machine_are_small_and_whole():
    found = processor.facts()
    assert set(found) <= {
        "cpu.id", "cpu.isa", "cpu.virtual", "cpu.mhz", "cpu.mhz.is", "cpu.cores", "cpu.sockets",
    }  # fmt: skip
    if "cpu.cores" in found:
        assert 1 <= int(str(found["cpu.sockets"])) <= int(str(found["cpu.cores"]))
    assert re.fullmatch(r"[\w,]*", str(found.get("cpu.isa", "")))
