# SPDX-License-Identifier: Apache-2.0
"""Copies between devices are communication, in every report, figure and rule."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from pyprof import metrics, profiles
from pyprof.core.model import MEMCPY
from pyprof.reports import waterfall
from tests.build import Kernel, Recording, write_capture, write_nsys, write_nvprof
from tests.reports.ranks import NCCL, K, trace
from tests.reports.test_communication import table
from tests.rules.small import Small
from tests.rules.test_rules import busy, outcome

US = 1000  # ns
GEMM = "volta_sgemm_128x64_nn"
# A product of 200; a copy to another GPU, of 200, that begins in it; a collective of 200 that begins before that ends;
# a copy from the host of 120; a set of 20.
SPANS = {"product": (100, 300), "peer": (250, 450), "nccl": (400, 600), "host": (580, 700), "set": (690, 710)}
OVERLAP = {
    "computation_ns": 200,
    "communication_ns": 350,
    "overlap_ns": 50,
    "exposed_ns": 300,
    "memory_ns": 110,
}


@pytest.fixture(autouse=True)
def in_this_process(monkeypatch: pytest.MonkeyPatch) -> None:
    """Files of a few events are read faster than a process starts."""
    monkeypatch.setattr("pyprof.parse.reader_process.cores", lambda: 1)


def kineto(folder: Path, name: str = "Memcpy PtoP (Device -> Device)") -> profiles.Profile:
    """The spans, in us, in a step of 1000."""
    kernels = [K(GEMM, 100, 200), K("all_reduce", 400, 200)]
    told = json.loads(trace(0, kernels, [(0, 1000)]))
    for number, (what, category) in enumerate(
        {
            name: "gpu_memcpy",
            "Memcpy HtoD (Pinned -> Device)": "gpu_memcpy",
            "Memset (Device)": "gpu_memset",
        }.items()
    ):
        start, end = SPANS[("peer", "host", "set")[number]]
        told["traceEvents"] += [
            {"ph": "X", "cat": "cuda_runtime", "name": "cudaMemcpyAsync", "pid": 1000, "tid": 1000, "ts": start - 20,
             "dur": 1, "args": {"correlation": 50 + number}},
            {"ph": "X", "cat": category, "name": what, "pid": 0, "tid": 20 + number, "ts": start, "dur": end - start,
             "args": {"correlation": 50 + number, "device": 0, "stream": 20 + number, "bytes": 4096}},
        ]  # fmt: skip
    path = folder / "rank0.1.pt.trace.json"
    path.write_text(json.dumps(told))
    return profiles.load(path)


def recorded() -> Recording:
    spans = {name: (start * US, end * US) for name, (start, end) in SPANS.items()}
    return Recording(
        kernels=[
            Kernel(GEMM, *spans["product"]),
            Kernel("c", *spans["peer"], stream=20, size=4096, copy_kind=10),
            Kernel(NCCL["all_reduce"], *spans["nccl"], stream=21),
            Kernel("c", *spans["host"], stream=22, size=4096, copy_kind=1),
            Kernel("s", *spans["set"], stream=23, size=4096),
        ]
    )


@pytest.mark.parametrize("form", ["kineto", "roctracer", "nsys", "nvprof", "capture"])
def test_every_format_tells_them(tmp_path, form):
    names = {"kineto": "Memcpy PtoP (Device -> Device)", "roctracer": "CopyPeerToPeer"}
    writers = {"nsys": write_nsys, "nvprof": write_nvprof, "capture": write_capture}
    if form in names:
        prof = kineto(tmp_path, names[form])
    else:
        prof = profiles.load(writers[form](tmp_path / "net.sqlite", recorded()))
    (row,) = table(prof, "overlap")
    assert {key: row[key] for key in OVERLAP} == {key: value * US for key, value in OVERLAP.items()}


def test_all_reports_and_figures_agree(tmp_path):
    prof = kineto(tmp_path)
    (row,) = table(prof, "overlap")
    assert row["other_ns"] == (1000 - 610) * US
    (step,) = table(prof, "step_time")  # of what runs at once the kernel counts, then the copy, then the set
    parts = {key: step[f"{key}_ns"] // US for key in ("kernel", "memcpy", "memset", "communication")}
    assert parts == {"kernel": 200, "memcpy": 120, "memset": 10, "communication": 280}
    (seven,) = table(prof, "step_time", categories="7")  # the plugin's, which know no communication
    assert {key: seven[f"{key}_ns"] // US for key in ("kernel", "memcpy", "memset")} == {
        "kernel": 400, "memcpy": 200, "memset": 10
    }  # fmt: skip
    window = prof.source().window
    (device,) = window.used
    sums = {
        "kernel_busy_ns": 400,
        "communication_ns": 350,
        "exposed_communication_ns": 300,
        "exposed_memory_ns": 110,
        "busy_ns": 610,
    }
    assert {key: device.sums[key] // US for key in sums} == sums
    assert device.sums["kernel_ns"] == 400 * US  # kernels alone
    assert device.sums["memory_ns"] == (200 + 120 + 20) * US  # every copy and set
    assert metrics.value("communication_overlap", window) == pytest.approx(100 * 50 / 350)
    assert metrics.value("exposed_communication_share", window) == pytest.approx(30)
    assert metrics.value("kernel_utilization", window) == pytest.approx(40)
    assert sum(gap["total_ns"] for gap in table(prof, "idle")) == row["other_ns"]
    of = {row["category"]: row["time_ns"] for row in table(prof, "categories", by="category")}
    assert (of["communication"], of["copy"]) == (400 * US, 140 * US)
    copies = {row["kind"]: (row["calls"], row["bytes"], row["total_ns"]) for row in table(prof, "memory_copies")}
    assert copies["PtoP"] == (1, 4096, 200 * US)


def test_what_changed_between_runs_has_the_same_parts(tmp_path):
    prof = kineto(tmp_path)
    source = prof.source()
    found = waterfall.compare(source, source)
    parts = found[found["section"] == "part"].set_index("name")
    time = parts["base_time_ns"].to_dict()
    assert (time["kernel"], time["memory copies"], time["memory sets"]) == (200 * US, 120 * US, 10 * US)
    assert time["exposed communication"] == 280 * US
    count = parts["base_count"].to_dict()
    assert (count["kernel"], count["exposed communication"], count["memory copies"]) == (1, 2, 1)
    assert parts["base_bytes"]["memory copies"] == 4096


def peers(time: int, name: str = "memcpy PtoP") -> Small:
    """After 400 us of products a copy, while nothing else runs, in each step."""
    made = busy(Small(), 400_000)
    for t in made.each():
        made._event(
            name, t + 100_000, time, made.op("to", t + 2_000, t + 3_000), None, 1_000, True, "cudaMemcpyPeerAsync",
            kind=MEMCPY, device=0, stream=20, tc=2, copied_bytes=1 << 20, copy_from=2, copy_to=2,
        )  # fmt: skip
    return made


def test_rules_see_exposed_communication_not_exposed_copies():
    exposed = outcome("R28", peers(200_000)).finding
    assert exposed is not None
    assert exposed.problem.startswith("Collectives and copies between GPUs run for 200 us a step; 200 us of it")
    assert exposed.saving == 10 * 200_000
    assert exposed.evidence[0]["bytes"] == 10 << 20
    assert outcome("R11", peers(200_000)).finding is None
    for rule in ("R29", "R30"):
        assert outcome(rule, peers(200_000)).finding is None
    local = peers(200_000, "memcpy DtoD")
    assert outcome("R28", local).finding is None
    assert outcome("R11", local).finding is not None
