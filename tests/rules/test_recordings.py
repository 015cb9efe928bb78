# SPDX-License-Identifier: Apache-2.0
"""Every rule and report on traces of torch.profiler that others recorded; figures of findings again from the raw
events, in plain Python."""

from __future__ import annotations

import gzip
import json
import tarfile
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import pytest

import pyprof
from benchmarks import recordings
from pyprof import profiles
from pyprof.core.registry import load_folder
from pyprof.core.units import duration
from pyprof.reports import every
from pyprof.rules import RULES, Finding, launch
from pyprof.rules.context import Run
from pyprof.rules.evaluation import judge
from tests import kineto
from tests.rules.test_any import checked

Span = tuple[int, int]
Opened = Callable[[str], profiles.Profile]
RESNET, NCCL = "resnet50_v100_6steps.pt.trace.json.gz", "nccl_a100_rank0of2.json.gz"
FILES = ("h100_bert_small.json.gz", *(
    pytest.param(name, marks=pytest.mark.long) for name in (NCCL, "mi210_gpu_only.json.gz")
))  # fmt: skip


@cache
def findings(prof: profiles.Profile) -> dict[str, Finding]:
    return {each.rule.id: each.finding for each in checked(prof.source()) if each.finding}


def verdict(prof: profiles.Profile, rule: str) -> Finding | None:
    load_folder("pyprof.rules")
    return judge(RULES[rule], Run(prof.source())).finding


def raw(path: Path) -> list[dict[str, Any]]:
    events = json.loads(gzip.decompress(path.read_bytes()))["traceEvents"]
    return [event for event in events if event.get("ph") == "X" and "dur" in event]


def span(event: dict[str, Any]) -> Span:
    start = round(event["ts"] * 1000)
    return start, start + round(event["dur"] * 1000)


def union(spans: list[Span]) -> list[Span]:
    out: list[Span] = []
    for start, end in sorted(spans):
        if out and start <= out[-1][1]:
            out[-1] = out[-1][0], max(out[-1][1], end)
        else:
            out.append((start, end))
    return out


def length(spans: list[Span]) -> int:
    return sum(end - start for start, end in union(spans))


def outside(some: list[Span], others: list[Span]) -> int:
    return length(some + others) - length(others)


def is_gpu(event: dict[str, Any]) -> bool:
    return event.get("cat", "").lower() in ("kernel", "memcpy", "memset", "gpu_memcpy", "gpu_memset")


@pytest.mark.parametrize("name", FILES)
def test_every_rule_and_report_answers(recorded, name):
    prof = recorded(f"kineto/{name}")
    findings(prof)
    for report in every():
        choices = [{}] + [{option.name: value} for option in report.options for value in option.choices]
        for chosen in choices:
            assert set(report.choose(**chosen).table(prof.source()).columns), (report.name, chosen)


def test_eight_ranks_answer_too(data, recorded, tmp_path):
    with tarfile.open(data / "kineto/dlrm_v100_8ranks.tar.gz") as archive:
        archive.extractall(tmp_path, filter="data")
    found = findings(recorded("kineto/dlrm_v100_8ranks.tar.gz"))
    assert "R36" not in found  # its one candidate waits for other ranks
    assert all(row["bytes"] for row in found["R28"].evidence)
    # Every rank runs the same eight collectives in one order; who came last waits for none.
    ranks = []
    for path in sorted(tmp_path.rglob("*.json*")):
        content = path.read_bytes()
        events = json.loads(gzip.decompress(content) if path.suffix == ".gz" else content)["traceEvents"]
        own = [e for e in events if is_gpu(e) and "nccl" in e["name"].lower()]
        ranks.append([e["dur"] for e in sorted(own, key=lambda e: float(e["ts"]))])
    every = list(zip(*ranks, strict=True))
    waiting = 1 - sum(8 * min(one) for one in every) / sum(map(sum, every))
    assert f"For {100 * waiting:.1f} % of their time they wait" in found["R28"].problem


def test_the_wait_for_a_loader_without_workers(data, recorded):
    """A gap of the GPU is the loader's where the loop is in the loader for half of the time until the next launch has
    returned, or longer."""
    found = findings(recorded(f"kineto/{RESNET}"))
    events = raw(data / "kineto" / RESNET)
    waits = [span(e) for e in events if e["name"].startswith("enumerate(DataLoader)#")]
    on_gpu = sorted((span(e), e["args"]["correlation"]) for e in events if is_gpu(e))
    returned = {
        e["args"]["correlation"]: span(e)[1]
        for e in events
        if e.get("cat") == "Runtime" and "correlation" in e.get("args", {})
    }
    steps = [span(e) for e in events if e["name"].startswith("ProfilerStep#")]
    idle, end = 0, min(start for start, _ in steps)
    for (start, stop), correlation in on_gpu:
        until = min(returned[correlation], start)
        if end < until:
            loading = until - end - outside([(end, until)], waits)
            idle += (start - end) * (2 * loading >= until - end)
        end = max(end, stop)
    assert "_SingleProcessDataLoaderIter" in next(e["name"] for e in events if e["name"].startswith("enumerate("))
    assert "R08" not in found
    assert f"the time, {duration(idle / 6)} a step" in found["R09"].problem
    # What the loop does in the loader is more than what the GPU waits for, and what it launches then, late, is less.
    assert 0.9 * idle < found["R09"].saving < sum(stop - start for start, stop in waits)


def test_products_in_float32(data, recorded):
    found = findings(recorded(f"kineto/{RESNET}"))["R12"]
    names = ("sgemm", "scudnn", "convolve", "dgrad", "wgrad", "winograd", "fft2d", "gemmk1", "conv2d")
    products = [
        e for e in raw(data / "kineto" / RESNET) if is_gpu(e) and any(name in e["name"].lower() for name in names)
    ]
    per_step = sum(e["dur"] for e in products) / 1000 / 6
    assert f"take {per_step:.1f} ms a step" in found.problem


def test_an_operator_that_uses_no_gpu(data, recorded):
    found = verdict(recorded(f"kineto/{NCCL}"), "R33")
    events = raw(data / "kineto" / NCCL)
    flat = [span(e) for e in events if e["name"] == "aten::unflatten_dense_tensors"]
    assert found is not None
    assert found.saving == outside(flat, [span(e) for e in events if is_gpu(e)])


@pytest.mark.parametrize("name", ["mi210_gpu_only.json.gz", "mi300_sglang_decode"])
def test_numbers_of_agents_are_no_unused_gpus(name: str, recorded: Opened) -> None:
    """GPU 0 is another agent of these machines: the one that ran has the properties, and no other is known."""
    profile = recorded(f"kineto/{name}")
    assert verdict(profile, "R04") is None
    gpu = profile.report("gpu")
    assert len(gpu) == 1
    assert gpu["sm_count"].tolist() == [104 if "mi210" in name else 304]


def test_a_replayed_graph_is_not_launched_kernel_by_kernel(recorded: Opened) -> None:
    """One hipGraphLaunch of 544 of the 555 kernels, after a wait of 463 ms."""
    assert verdict(recorded("kineto/mi300_sglang_decode"), "R05") is None


@pytest.mark.long
def test_the_page_of_recordings_is_true(
    data: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    request: pytest.FixtureRequest,
) -> None:
    """A finding that nobody has looked at is a fault until somebody has."""
    monkeypatch.setattr("sys.argv", ["recordings.py", str(data)])
    recordings.main()
    page, file = capsys.readouterr().out, recordings.ROOT / "docs" / "recordings.md"
    if request.config.getoption("--regold"):
        file.write_text(page, encoding="utf-8")
    assert file.read_text(encoding="utf-8") == page
    assert "(unjudged)" not in page
    assert "(false)" not in page.partition("|---|")[2]
    judged = {tuple(line.split(" | ")[:2]) for line in page.rpartition("|---|---|---|---|")[2].splitlines()}
    published = {(f"| {name}", rule) for name, rule in recordings.JUDGED if name not in recordings.LIBRARIES}
    assert published <= judged  # none that is no longer found


@pytest.mark.parametrize("graph", [False, True])
def test_kernels_launched_together_are_not_bound_by_launches(graph: bool, tmp_path: Path) -> None:
    """100 kernels of 2 us, one every 10 us: each by a launch that returns as it begins, or all by one."""
    events = [kineto.op("aten::mm", 0, 1_200_000)]
    if graph:
        events.append(kineto.launch(1_000, 1_100_000, 1, name="hipGraphLaunch"))
    for number in range(100):
        at = 10_000 * (number + 1)
        if not graph:
            events.append(kineto.launch(at - 3_000, at - 500, number + 1))
        events.append(kineto.kernel("gemm", at, at + 2_000, 1 if graph else number + 1))
    profile = pyprof.load(kineto.write(tmp_path / "trace.json", events))
    assert (verdict(profile, "R05") is None) is graph
    assert not graph or verdict(profile, "R06") is None


def _mean(prof: profiles.Profile, report: str, column: str, **options: str) -> float:
    """The sum of a column over all steps, mean over the rows' devices or workers."""
    table = prof.report(report, **options)
    by = ["worker", "device"] if "device" in table else ["worker"]
    return float(table.groupby(by)[column].sum().mean())


@pytest.mark.parametrize(
    "name",
    [
        RESNET,
        "h100_bert_small.json.gz",
        "dlrm_v100_8ranks.tar.gz",
        pytest.param(NCCL, marks=pytest.mark.long),
    ],
)
def test_figures_of_findings_are_those_of_the_tables(recorded, name):
    """All steps of these recordings are steady."""
    prof = recorded(f"kineto/{name}")
    found = findings(prof)
    savings = {rule: one.saving for rule, one in found.items()}
    run = Run(prof.source())
    of_phase = {"categories": "phase"}
    expected = {
        "R05": _mean(prof, "step_time", "launch_bound_ns", **of_phase),
        "R28": _mean(prof, "overlap", "exposed_ns"),
    }
    shown = set(expected) & set(savings)
    assert shown
    if "R09" in savings:  # of late launches some may be the loader's
        assert savings["R05"] <= expected.pop("R05")
    for rule in shown & set(expected):
        assert savings[rule] == pytest.approx(expected[rule], abs=1), rule
    workers = len(run.window.workers)
    assert sum(run.meanwhile) == pytest.approx(run.late * workers, abs=workers)
    late = found.get("R05")
    if late is not None:  # what ends waits of another cause is not named
        idle = prof.report("idle", by="cause")
        whole = idle.loc[idle["cause"] == "launch-bound", "total_ns"].sum()
        assert 0 < sum(row["waited_ns"] for row in late.evidence) <= whole
        if workers == 1:  # the sample is all of the recording
            assert launch._waits(run)["waited"].sum() == whole
    assert not {"R03", "R05"} <= set(found)


def test_products_of_a_finding_are_those_of_the_categories(recorded):
    prof = recorded(f"kineto/{RESNET}")
    table = prof.report("categories", by="kind").set_index("kind")
    time = table.loc[["conv", "gemm"], "no_tc_ns"].sum() / 6
    assert f"take {duration(time)} a step" in findings(prof)["R12"].problem
