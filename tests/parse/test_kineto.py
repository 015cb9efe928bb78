# SPDX-License-Identifier: Apache-2.0
"""Traces of torch.profiler by others: counts, sums, unions and links against figures worked out from the raw events."""

from __future__ import annotations

import json
import re
import tarfile
from collections.abc import Callable
from decimal import Decimal
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import pyprof
from pyprof.core.model import KERNEL, MEMCPY, MEMSET, Trace
from pyprof.parse import loader
from pyprof.parse.join import link
from pyprof.parse.rows import rows
from pyprof.profiles import Profile
from tests import kineto

TRACES = ("resnet50_v100_6steps.pt.trace.json.gz", "nccl_a100_rank0of2.json.gz", *(
    pytest.param(name, marks=pytest.mark.long)
    for name in ("v100_216k_events.json.gz", "mi300_resnet_act_checkpoint.json.gz", "h100_owlv2_large.json.gz")
))  # fmt: skip


@pytest.fixture(scope="module")
def read(data: Path) -> Callable[[str], Trace]:
    """Recordings as columns, each read once."""
    return cache(lambda name: loader.load(data / "kineto" / name))


RANKS = ("rank0", "rank3")


@pytest.fixture
def expected(data: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((data / "expected_traces.json").read_text())
    return found


def union(start: Any, end: Any) -> int:
    """Length of a union of intervals, one after the other in plain Python."""
    total = reached = 0
    for a, b in sorted(zip(start.tolist(), end.tolist())):
        total += max(b - max(a, reached), 0)
        reached = max(reached, b)
    return total


def figures(trace: Trace) -> dict[str, int]:
    gpu = trace.gpu
    kernel = gpu.kind == KERNEL
    named = np.array([re.search("nccl|rccl|oneccl", text, re.I) is not None for text in trace.strings.texts])
    comm = named[gpu.name] & kernel
    length = gpu.end - gpu.start
    owner = np.array([thread.process for thread in trace.threads])
    all_, compute, comms = (union(gpu.start[m], gpu.end[m]) for m in (kernel, kernel & ~comm, comm))
    busy, span = union(gpu.start, gpu.end), int(gpu.end.max() - gpu.start.min())
    return {
        "kernels": int(kernel.sum()), "kernels_comm": int(comm.sum()), "memcpy": int((gpu.kind == MEMCPY).sum()),
        "memset": int((gpu.kind == MEMSET).sum()), "sum_kernel_us": int(length[kernel].sum()),
        "sum_comm_us": int(length[comm].sum()), "union_all_kernels_us": all_, "union_compute_kernels_us": compute,
        "union_comm_us": comms, "overlap_comm_compute_us": compute + comms - all_, "union_gpu_all_us": busy,
        "gpu_span_us": span, "gpu_idle_us": span - busy, "distinct_kernels": len(set(gpu.name[kernel].tolist())),
        "kernels_linked_to_runtime": int((link(gpu, trace.launches, owner) >= 0)[kernel].sum()),
    }  # fmt: skip


def exact(microseconds: float) -> int:
    """Nanoseconds: a double holds the digits that were written, and prints them again."""
    return int(Decimal(repr(microseconds)) * 1000)


def check(trace: Trace, wanted: dict[str, Any]) -> None:
    for key, value in figures(trace).items():
        assert value == (exact(wanted[key]) if key.endswith("_us") else wanted[key]), key
    starts, lengths = trace.steps.start + trace.t0, trace.steps.end - trace.steps.start
    marks = {f"ProfilerStep#{n}": times for n, *times in zip(trace.steps.number, starts, lengths)}
    base = int(trace.meta.get("baseTimeNanoseconds", 0))
    told = {
        mark: (value["ts"], value["dur"]) if isinstance(value, dict) else value
        for mark, value in wanted["steps"].items()
    }
    assert marks == {mark: [exact(ts) + base, exact(length)] for mark, (ts, length) in told.items()}
    assert trace.lost == {}


@pytest.mark.parametrize("name", TRACES)
def test_figures_of_the_raw_events(name: str, read: Callable[[str], Trace], expected: dict[str, Any]) -> None:
    check(read(name), expected["traces"][f"kineto/{name}"])


@pytest.mark.parametrize("rank", RANKS)
def test_figures_of_a_rank(rank: str, data: Path, expected: dict[str, Any], tmp_path: Path) -> None:
    name = "dlrm_v100_8ranks.tar.gz"
    with tarfile.open(data / "kineto" / name) as archive:
        member = next(m for m in archive if f"worker{rank.removeprefix('rank')}_" in m.name)
        archive.extract(member, tmp_path, filter="data")
    check(loader.load(tmp_path / member.name), expected["traces"][f"kineto/{name}"][rank])


@pytest.mark.parametrize("name", TRACES)
def test_every_kernel_with_a_launch_belongs_to_an_operator(
    name: str, read: Callable[[str], Trace], expected: dict[str, Any]
) -> None:
    trace = read(name)
    kernels, agree, disagree, contained, _, neither = expected["linking"]["rows"][f"kineto/{name}"]
    made = rows(trace)
    named = np.array([bool(site.ops) for site in made.sites])[made.site]
    assert (len(made), int(named.sum()), int((~named).sum())) == (
        kernels,
        agree + disagree + contained,
        neither,
    )


def test_convolutions_without_recorded_strides(read: Callable[[str], Trace]) -> None:
    """ResNet-50 has 4 087 136 256 multiply-adds in its convolutions per image of 224 x 224: the published 4.089e9 less
    2048 · 1000 of the last layer. The backward does all twice but for the first input."""
    table = Profile(read("resnet50_v100_6steps.pt.trace.json.gz"), False).table
    convolutions = table[table["op"] == "aten::cudnn_convolution"]
    images, whole, first = 6 * 32, 2 * 4_087_136_256, 2 * 64 * 3 * 49 * 112**2
    found = convolutions.groupby("dir")["flops"].sum()
    assert found["fprop"] == images * whole
    assert found["bprop"] == images * (2 * whole - first)


def test_dma_requests_of_mtia_are_copies(tmp_path: Path) -> None:
    """One with a direction that is not known, and a kernel that has one, stay kernels."""

    def event(name: str, start: int, **args: Any) -> kineto.Event:
        return kineto.event("mtia_ccp_events", name, start, start + 500, 17, 3, stream=105, **args)

    path = kineto.write(tmp_path / "t.json", [
        kineto.op("aten::mm", 0, 900),
        event("dma_request", 1_000, direction="HOST_TO_DEVICE", size=4096), event("fc_kernel", 2_000),
        event("dma_request", 3_000, direction="DEVICE_TO_HOST", size=64), event("dma_request", 4_000),
        event("dma_request", 5_000, direction="SIDEWAYS", size=7),
        event("fc_kernel", 6_000, direction="HOST_TO_DEVICE", size=8),
    ])  # fmt: skip
    gpu = (trace := loader.load(path)).gpu
    copied = gpu.bytes.mask()
    assert [trace.strings[code] for code in gpu.name] == [
        "memcpy HtoD", "fc_kernel", "memcpy DtoH", "dma_request", "dma_request", "fc_kernel",
    ]  # fmt: skip
    assert gpu.kind.tolist() == [MEMCPY, KERNEL, MEMCPY, KERNEL, KERNEL, KERNEL]
    assert (gpu.bytes.values[copied].tolist(), copied.nonzero()[0].tolist()) == ([4096, 64], [0, 2])
    copies = pyprof.load(path).report("memory_copies")
    assert sorted(copies[["kind", "bytes", "total_ns"]].values.tolist()) == [
        ["DtoH", 64, 500],
        ["HtoD", 4096, 500],
    ]


def test_copies_of_a_recording_of_mtia(recorded: Callable[[str], Profile]) -> None:
    """450 and 427 requests of 460,800 and 788,439,608 bytes, counted in the file with json alone."""
    found = recorded("kineto/mtia_inference.json.gz").report("memory_copies")
    sums = found.groupby("kind")[["calls", "bytes", "total_ns"]].sum()
    assert sums.loc["DtoH"].tolist() == [450, 460_800, 2_759_889]
    assert sums.loc["HtoD"].tolist() == [427, 788_439_608, 42_611_301]
