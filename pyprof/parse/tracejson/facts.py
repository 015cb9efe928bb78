# SPDX-License-Identifier: Apache-2.0
"""Devices, run, copies and collectives of a trace in the terms of the model."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

from pyprof.core.model import DTYPE_BITS, Collective, Device
from pyprof.core.symbols import dtype_of
from pyprof.parse.tracejson.arguments import shapes_and_types

# Kinds of memory as a copy's name spells them -> Nsight's numbers. Source: ENUM_CUDA_MEM_KIND of its exports; ROCm's
# "Host" does not say whether the memory is pinned.
_MEMORY = {
    "Pageable": 0,
    "Pinned": 1,
    "Device": 2,
    "Array": 3,
    "Managed": 4,
    "Device Static": 5,
    "Managed Static": 6,
}
_COPY = re.compile(r"Memcpy (?P<kind>\w+)(?: \((?P<source>[\w ]+) -> (?P<target>[\w ]+)\))?")
_FACTS = {
    "cuda_runtime_version": "cuda",
    "cuda_driver_version": "cuda.driver",
    "hip_runtime_version": "hip",
    "host_name": "host",
}
_DISTRIBUTED = ("backend", "rank", "world_size", "pg_count", "nccl_version")


class Copy(NamedTuple):
    """A copy: its name as in exports of Nsight Systems, and the kinds of memory at both ends."""

    name: str
    source: int | None = None
    target: int | None = None


def copies(names: Sequence[str]) -> dict[int, Copy]:
    """Return the copies and sets among names, by index."""
    out = {}
    for index, name in enumerate(names):
        if match := _COPY.match(name):
            ends = (_MEMORY.get(match[side] or "") for side in ("source", "target"))
            out[index] = Copy(f"memcpy {match['kind']}", *ends)
        elif name.startswith("Memset"):
            out[index] = Copy("memset")
    return out


def devices(properties: Any) -> list[Device]:
    """Return the visible devices, which need not be those that were used."""
    out = []
    for entry in properties if isinstance(properties, list) else []:
        number = entry.get("id") if isinstance(entry, dict) else None
        if type(number) is not int:
            continue
        major, minor = _int(entry.get("computeMajor")), _int(entry.get("computeMinor"))
        capability = None if major is None or minor is None else f"{major}.{minor}"
        name = entry.get("name")
        out.append(Device(
            number, name if isinstance(name, str) else "", _int(entry.get("numSms")), capability,
            _int(entry.get("totalGlobalMem")),
        ))  # fmt: skip
    return sorted(out)


def agent_devices(visible: list[Device], used: Iterable[int]) -> list[Device]:
    """Return the devices of a ROCm trace, whose events number HSA agents: processors come first, so that GPU 0 is agent
    2 on a machine with two. Properties can be assigned only if all visible devices are alike; unused devices are
    left out.

    >>> [(one.number, one.name) for one in agent_devices([Device(0, "MI300X"), Device(1, "MI300X")], [9, 2])]
    [(2, 'MI300X'), (9, 'MI300X')]
    >>> [(one.number, one.name) for one in agent_devices([Device(0, "MI300X"), Device(1, "MI210")], [2])]
    [(2, '')]
    """
    kinds = {device._replace(number=0) for device in visible}
    like = kinds.pop() if len(kinds) == 1 else Device(0, "")
    return [like._replace(number=number) for number in sorted(set(used))]


def is_rocm(visible: list[Device], calls: Iterable[str]) -> bool:
    """Return whether a trace is of ROCm, by its devices' names or its API calls."""
    return any(device.name.startswith("AMD ") for device in visible) or any(name.startswith("hip") for name in calls)


def meta(facts: dict[str, Any]) -> dict[str, str]:
    """Return facts of the run under the names that PyProf's own capture uses; the others keep the trace's names."""
    out = {}
    for name, value in sorted(facts.items()):
        if isinstance(value, (str, int, float)) and name not in ("traceName", "schemaVersion"):
            out[_FACTS.get(name, name)] = version(value) if name.endswith("_version") else str(value)
    distributed = facts.get("distributedInfo")
    if isinstance(distributed, dict):
        for name in _DISTRIBUTED:
            if name in distributed:
                out["rank" if name == "rank" else f"distributed.{name}"] = str(distributed[name])
    return out


def version(value: Any) -> str:
    """Format a version. CUDA counts in thousands: 12040 is 12.4."""
    if type(value) is int and 1000 <= value < 100_000:
        return f"{value // 1000}.{value % 1000 // 10}"
    return str(value)


def rank(facts: dict[str, Any]) -> int | None:
    """Return the process's rank, None if the trace does not record it."""
    distributed = facts.get("distributedInfo")
    number = _int(distributed.get("rank")) if isinstance(distributed, dict) else None
    return number if number is not None and number >= 0 else None


def collective(name: str, args: Any) -> Collective:
    """Return an event's collective: from the fields of c10d, otherwise from the range's name and the shape of its
    input."""
    dtype = _dtype(args.dtype)
    if args.collective is None:
        return _range_collective(name, args)
    width = DTYPE_BITS.get(dtype or "", 0) // 8 or None
    sent, received = (
        count * width if width and (count := _int(number)) is not None else None
        for number in (args.sent, args.received)
    )
    group = args.group if isinstance(args.group, str) and args.group else None
    return Collective(spelled(str(args.collective)), sent, received, dtype, group, _int(args.size), _int(args.seq))


def _range_collective(name: str, args: Any) -> Collective:
    """Return the collective of a range such as `nccl:all_reduce` with the shape of a tensor. The received size is not
    recorded: it follows from the kind."""
    kind = spelled(name.partition(":")[2])
    size, dtype = 0, None
    for shape, type_name in shapes_and_types(getattr(args, "shapes", b""), getattr(args, "types", b"")):
        bits = DTYPE_BITS.get(dtype_of(type_name), 0)
        count = 1
        for length in shape:
            count *= length
        if not bits:
            return Collective(kind)
        size, dtype = size + count * bits // 8, dtype_of(type_name)
    total = size if dtype else None
    return Collective(kind, total, total if kind in ("all_reduce", "broadcast") else None, dtype)


_SPELLINGS = {
    "allreduce": "all_reduce", "allgather": "all_gather", "reducescatter": "reduce_scatter", "alltoall": "all_to_all",
}  # fmt: skip
_SUFFIXES = re.compile(r"(?:_base|_coalesced|_tensor|_into|_single|v|_)$")


def spelled(name: str) -> str:
    """Normalize the kind of a collective, whatever variant of it ran.

    >>> [spelled(n) for n in ("allreduce", "_all_gather_base", "all_to_allv", "_reduce_scatter_base", "broadcast_oop")]
    ['all_reduce', 'all_gather', 'all_to_all', 'reduce_scatter', 'broadcast']
    """
    text = name.lower().strip("_").removesuffix("_oop")
    while (shorter := _SUFFIXES.sub("", text)) != text:
        text = shorter
    return _SPELLINGS.get(text, _SPELLINGS.get(text.replace("_", ""), text)) or "collective"


# c10d's names of types (toString of a ScalarType) that differ from torch's.
_TYPES = {"Float": "float32", "Half": "float16", "BFloat16": "bfloat16", "Double": "float64", "Long": "int64",
          "Int": "int32", "Byte": "uint8", "Char": "int8", "Short": "int16", "Bool": "bool"}  # fmt: skip


def _dtype(name: Any) -> str | None:
    if not isinstance(name, str) or not name:
        return None
    return _TYPES.get(name) or dtype_of(name)


def _int(value: Any) -> int | None:
    return value if type(value) is int and abs(value) < 1 << 62 else None
