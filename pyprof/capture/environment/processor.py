# SPDX-License-Identifier: Apache-2.0
"""Facts of the processor, from which its peak rates can be derived: model, instruction sets, cores and clock.

Read from /proc and /sys of Linux, once; a system without them leaves the facts out. Nothing is measured.

>>> isa(["fpu", "avx2", "fma", "sse"])
'avx2,fma'
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable
from contextlib import suppress
from functools import cache
from pathlib import Path

# Instructions that decide how fast a core multiplies. Names are the kernel's (arch/x86/include/asm/cpufeatures.h,
# Documentation/arch/arm64/elf_hwcaps.rst).
DECISIVE = (
    "avx2", "fma", "avx512f", "avx512_bf16", "avx512_fp16", "avx512_vnni", "avx_vnni",
    "amx_bf16", "amx_fp16", "amx_int8", "asimd", "asimdhp", "asimddp", "sve", "bf16", "i8mm",
)  # fmt: skip
_CPUINFO = Path("/proc/cpuinfo")
_CPUS = Path("/sys/devices/system/cpu")


def isa(flags: Iterable[str]) -> str:
    """Return the decisive ones among a processor's flags."""
    available = set(flags)
    return ",".join(name for name in DECISIVE if name in available)


def facts() -> dict[str, object]:
    """Return the facts that the system provides. Cores and sockets are those that the process may use."""
    out: dict[str, object] = {**_described()}
    with suppress(OSError, AttributeError, ValueError):
        usable = os.sched_getaffinity(0)
        places = {(_read(cpu, "topology/physical_package_id"), _read(cpu, "topology/core_id")) for cpu in usable}
        out |= {"cpu.cores": len(places), "cpu.sockets": len({socket for socket, _ in places})}
    return out


@cache
def _described() -> dict[str, object]:
    """Return the facts that are the same for every CPU of the machine: identity, instructions, clock."""
    with suppress(OSError, ValueError):
        return described(_CPUINFO.read_text(encoding="utf-8", errors="replace"), _maximum())
    return {}


def described(cpuinfo: str, maximum_mhz: int | None) -> dict[str, object]:
    r"""Parse the facts from the text of /proc/cpuinfo.

    The clock is the maximum if the system provides it, else the nominal one: from the name ("@ 2.70GHz"), else the
    current one.

    >>> tuple(described("CPU implementer: 0x41\nCPU part: 0xd40\nFeatures: fp asimd sve", 2600).values())
    ('0x41 0xd40', 'asimd,sve', False, 2600, 'maximum')
    """
    first: dict[str, str] = {}
    for line in cpuinfo.splitlines():
        key, separator, value = line.partition(":")
        if separator:
            first.setdefault(key.strip(), value.strip())
    flags = first.get("flags", first.get("Features", "")).split()
    keys = ("vendor_id", "cpu family", "model", "stepping") if "vendor_id" in first else ("CPU implementer", "CPU part")
    out: dict[str, object] = {
        "cpu.id": " ".join(first[key] for key in keys if key in first),
        "cpu.isa": isa(flags),
        "cpu.virtual": "hypervisor" in flags,
    }
    in_name = re.search(r"@ ?([\d.]+) ?GHz", first.get("model name", ""))
    nominal = float(in_name[1]) * 1000 if in_name else float(first.get("cpu MHz", 0))
    if maximum_mhz or nominal:
        out |= {
            "cpu.mhz": maximum_mhz or round(nominal),
            "cpu.mhz.is": "maximum" if maximum_mhz else "nominal",
        }
    return {key: value for key, value in out.items() if value != ""}


def _maximum() -> int | None:
    with suppress(OSError, ValueError):
        return int(_read(0, "cpufreq/cpuinfo_max_freq")) // 1000
    return None


def _read(cpu: int, name: str) -> str:
    return (_CPUS / f"cpu{cpu}" / name).read_text().strip()
