# SPDX-License-Identifier: Apache-2.0
"""Every cell of every report, and every figure, equal what plain Python makes of the raw recording (tests/oracle.py):
on random small recordings, and on a recording of DLProf's time whose genuine DLProf figures are known."""

from __future__ import annotations

import math
import os
import random
from collections.abc import Callable, Iterable
from functools import cache
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from pyprof import metrics, profiles
from pyprof.core.model import Column
from pyprof.costs.columns import View
from pyprof.measures import efficiency
from pyprof.store.write import peaks
from tests import oracle
from tests.build import LONG, Recording, call, recording, scratch, write_capture
from tests.oracle import Oracle, Window

SMS = 80  # of device 0 in recordings that tests write; nothing is known of others
KEY = "net/step"

KERNELS = (
    "volta_sgemm_128x64_nn", "volta_h884gemm_64x64_ldg8_nn", "ncclDevKernel_AllReduce_Sum_f32_RING_LL",
    "void at::native::vectorized_elementwise_kernel<4, f>(int)", "void at::native::reduce_kernel<512, 1>(int)",
)  # fmt: skip
COPIES = ("size=64 copy_kind=1 c", "size=4096 copy_kind=2 c", "size=512 copy_kind=10 c", "size=16 s")
CALLS = (
    call("torch.mm", (64, 32), (32, 16), module="net.first", trace=("net.py:1", "run.py:9")),
    call("torch.relu", (64, 16), module="net.first", trace=("net.py:2",)),
    call("torch.relu", (8, 16), module="net.first", trace=("net.py:2",)),
    call("torch.nn.functional.linear", (4, 8), (5, 8), module="net.second.deep"),
    call("torch.add", (4, 8), (4, 8)),
    call("torch.step", (3,), module="net"),
)


def random_recording(seed: int) -> Recording:
    """Two processes, two threads, two devices, two streams; steps, waits for data, file calls, synchronisation."""
    rng = random.Random(seed)
    lines: list[str] = []
    for _ in range(rng.randint(1, 5)):
        lines.append(f"thread {rng.choice([1, 1, 2])} process {rng.choice([100, 100, 200])}")
        for _ in range(rng.randint(1, 4)):
            lines += _item(rng, 0)
    lines += [*lines[:1], CALLS[0], "    > 5 " + KERNELS[1]]  # something runs on a device at all
    out = recording("\n".join(lines))
    marked = sorted(rng.sample(range(5, out_end(out)), 3)) if rng.random() < 0.5 else []
    out.steps = [(i, a, b) for i, (a, b) in enumerate(pairwise(marked))]
    return out


def out_end(what: Recording) -> int:
    return max([k.end for k in what.kernels] + [r.end or 0 for r in what.ranges]) + 9


def _item(rng: random.Random, depth: int) -> list[str]:
    indent = "    " * depth
    what = rng.random()
    if what < 0.5 and depth < 2:
        inside = [line for _ in range(rng.randint(0, 3)) for line in _item(rng, depth + 1)]
        return [indent + rng.choice(CALLS), *inside]
    if what < 0.8:
        options = f"stream={rng.choice([7, 8])} device={rng.choice([0, 0, 1])} grid={rng.choice([1, 40, 200])},1,1 "
        if rng.random() < 0.3:
            options += f"skew={rng.randint(1, 60)} "
        if rng.random() < 0.1:
            options += "correlation=none "
        return [f"{indent}> {rng.randint(1, 90)} {options}{rng.choice(KERNELS + COPIES)}"]
    if what < 0.87:
        return [f"{indent}api {rng.randint(1, 60)} {rng.choice(['cudaStreamSynchronize_v3020', 'cudaMalloc_v3020'])}"]
    if what < 0.92:
        return [f"{indent}wait {rng.randint(1, 40)}"]
    if what < 0.96:
        return [f"{indent}file {rng.randint(1, 40)} read"]
    if depth:
        return []
    return ["enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__", f"    wait {rng.randint(1, 50)}"]


def plain(value: Any) -> Any:
    """A cell as a plain value; missing is None."""
    if value is None or value is pd.NA or (isinstance(value, float) and math.isnan(value)):
        return None
    return value.item() if hasattr(value, "item") else value


def rows(frame: pd.DataFrame) -> list[dict[str, Any]]:
    return [{key: plain(value) for key, value in zip(frame.columns, row)} for row in frame.itertuples(index=False)]


def same(found: Iterable[dict[str, Any]], expected: Iterable[dict[str, Any]], leaving: tuple[str, ...] = ()) -> None:
    """Rows are equal, cell by cell, in order."""
    found, expected = list(found), list(expected)
    assert len(found) == len(expected)
    for one, other in zip(found, expected):
        for column in one:
            if column not in leaving:
                assert one[column] == other[column], (column, one, other)


def by(key: tuple[str, ...], found: Iterable[dict[str, Any]], expected: Iterable[dict[str, Any]]) -> Any:
    """Both in one order: those of reports have an order by time, which other tests look at."""
    order = lambda row: tuple(row[k] for k in key)  # noqa: E731
    return sorted(found, key=order), sorted(expected, key=order)


def compare(prof: profiles.Profile, window: Window, worker: int | None = None, leaving: tuple[str, ...] = ()) -> None:
    """All reports, metrics and executions against the oracle's."""
    report = {
        n: rows(prof.report(n, worker)) for n in ("detail", "op_type", "group_node", "kernel", "tensor", "iteration")
    }
    work = efficiency.KEYS  # tests/reports/test_efficiency.py adds them up
    same(*by(("op_id",), report["detail"], oracle.detail(window).values()), (*leaving, *work))
    same(*by(("type",), report["op_type"], oracle.op_type(window).values()))
    same(*by(("name",), report["group_node"], oracle.group_node(window).values()))
    same(*by(("op_id", "kernel", "kind"), report["kernel"], oracle.kernel(window).values()), work)
    same(*by(("op_id",), report["tensor"], oracle.tensor(window).values()))
    names = [row[0] for row in prof.database.rows("select name from worker order by id")]
    same(report["iteration"], oracle.iteration(window, names, int(prof.database.meta["t0"])))
    table = rows(prof.report("summary", worker))
    for (name, figure), value in oracle.summary(window).items():
        assert [r["value"] for r in table if r["name"] == name and r["figure"] == figure] == [value], (
            name,
            figure,
        )
    _figures(prof, window, worker)


def _figures(prof: profiles.Profile, window: Window, worker: int | None) -> None:
    source = prof.source(worker)
    for name, value in window.metrics().items():
        found = metrics.value(name, source.window)
        assert (found is None) == (value is None), name
        assert value is None or found == pytest.approx(value, rel=1e-12, abs=1e-12), name
    for one in source.window.devices:
        expected = window.device(one.worker, one.number) if one.events else {}
        assert {k: one.sums[k] for k in expected} == expected
    for one in source.window.workers:
        parts = [window.parts(i) for i in window.iterations if i.worker == one.number]
        assert one.parts == {name: sum(p[name] for p in parts) for name in oracle.PARTS}
        assert sum(one.parts.values()) == one.wall


def executions(prof: profiles.Profile, found: Oracle) -> None:
    """The table of executions, row by row."""
    ops = prof.ops
    assert len(ops) == len(found.executions)
    t0 = int(prof.database.meta["t0"])
    for row, run in zip(rows(ops), found.executions):
        figures = run.figures()
        assert {key: row[key if key.endswith("kernels") else f"{key}_ns"] for key in figures} == figures
        start, end = (time if time == oracle.BEFORE else time - t0 for time in (run.start, run.end))
        assert (row["op_id"], row["start_ns"], row["end_ns"]) == (
            run.operator.op_id,
            start,
            end,
        )


def pids(prof: profiles.Profile) -> list[int]:
    return [row[0] for row in prof.database.rows("select pid from worker order by id")]


def load(what: Recording) -> profiles.Profile:
    return profiles.load(write_capture(Path(os.path.join(scratch(), "a.sqlite")), what))


def seeds(*chosen: int) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Run a test with the random recordings of these seeds; with PYPROF_LONG=1 of as many others."""
    values = range(100, 100 + len(chosen)) if LONG else chosen
    return lambda test: pytest.mark.counts(pytest.mark.parametrize("seed", values)(test))


@cache
def random_profile(seed: int) -> tuple[Recording, profiles.Profile]:
    """A random recording, shared by the tests of a process: they change neither it nor what is aggregated."""
    what = random_recording(seed)
    return what, load(what)


# Marked steps with a key operator, without one; neither; in the last two events of one stream start together, one
# without a launch.
@seeds(6, 12, 30, 0, 156333701)
def test_every_figure_of_a_random_recording(seed):
    what = random_recording(seed)
    prof = load(what)
    found = Oracle(what, {0: SMS}, pids(prof))
    executions(prof, found)
    marked = what.steps and 100 in found.workers
    keyed = any(run.operator.name == KEY for run in found.executions)
    if not marked and not keyed:
        if prof.aggregation.method == "none":
            compare(prof, Window(found, None, 0, None))
        return
    key = None if marked else KEY
    prof.aggregate(key=key)
    compare(prof, Window(found, key, 0, None))
    count = prof.steps["step"].max()
    rng = random.Random(seed)
    first = rng.randint(0, count)
    last = rng.randint(first, count)
    prof.aggregate(first, last, key)
    workers = sorted({i.worker for i in found.iterations(key) if first <= i.number <= last})
    compare(prof, Window(found, key, first, last))
    compare(prof, Window(found, key, first, last, workers[0]), workers[0])


@pytest.fixture(scope="module")
def cifar(data: Path) -> tuple[profiles.Profile, Oracle]:
    path = data / "nsys" / "cifar_rtx2070_pyprof_markers.sqlite"
    what, chips = oracle.of_nsys(path)
    prof = profiles.load(path)
    return prof, Oracle(what, chips, pids(prof))


def test_every_cell_of_every_report_of_a_recording_of_dlprofs_time(cifar):
    prof, found = cifar
    executions(prof, found)
    compare(prof, Window(found, None, 0, None), leaving=("module",))


def test_what_dlprof_itself_printed_of_that_recording(cifar):
    """Its own run on the same program: 34 operators, the sum of their GPU times, the sum of all events, the kernels and
    the GPU time of the first convolution."""
    prof, _ = cifar
    summary = prof.report("summary").set_index(["name", "figure"])["value"]
    assert summary["All ops", "GPU Time"] == 644_990
    assert summary["All kernels", "GPU Time, Summed"] == 655_837
    assert summary["All kernels", "Calls"] == 76
    first = prof.report("detail").iloc[0]
    assert (first["op_id"], first["gpu"]) == ("CONV2D_1", 309_276)
    tensor = prof.report("tensor").iloc[0]
    assert (tensor["op_id"], tensor["kernel"], tensor["gpu"]) == ("CONV2D_1", 306_779, 309_276)
    tree = prof.report("group_node").set_index("name")
    assert tree.loc["module/", "ops"] == 34


def test_rooflines_and_flops_at_the_peak_are_those_of_the_table(cifar):
    """The columns of `prof.py`, which other tests stand for, added up over the window."""
    prof, _ = cifar
    view = View(prof.rows, prof.hardware)
    kernels = prof.kernels[prof.kernels["kind"] == "kernel"]
    least = view.roofline.time
    known = ~np.isnan(least)
    assert known.sum() > 40
    assert sorted(kernels["roofline_ns"].dropna().tolist()) == sorted(np.rint(least[known]).astype(int).tolist())
    window = prof.source().window
    time = sum(view.rows.duration[known].tolist())
    defined = known & (view.costs.executed.mask() | ~view.costs.flops.mask())  # not FFT
    own = sum(view.rows.duration[defined].tolist())
    assert own < time
    assert metrics.value("roofline_efficiency", window) == 100 * int(np.rint(least[defined]).sum()) / own
    assert metrics.value("roofline_coverage", window) == 100 * time / int(view.rows.duration.sum())
    for name, flops in (("hfu", view.costs.executed), ("mfu", view.model_flops)):
        has = known & flops.mask()
        needed = np.rint((flops.values / view.roofline.peak)[has & (flops.values > 0)] * 1e12).sum()  # ps
        assert metrics.value(name, window) == pytest.approx(100 * needed / (1000 * window.wall))
    flops = int(view.costs.flops.values[view.costs.flops.mask()].sum())
    assert metrics.value("achieved_flops", window) == 1_000_000_000 * flops / window.wall


def test_model_flops_have_a_time_of_their_own_at_the_peak(cifar, monkeypatch):
    """In this recording the model needs what was executed; here half of it."""
    prof, _ = cifar
    view = View(prof.rows, prof.hardware)
    flops = view.costs.flops
    monkeypatch.setattr(peaks, "model_flops", lambda rows, costs: Column(flops.values // 2, flops.mask()))
    found = peaks.Peaks(view.rows, view.costs, [prof.hardware], np.zeros(len(view.rows), int)).of(
        np.arange(len(view.rows))
    )
    executed, needed = found["hardware_ps"], found["model_ps"]
    both = executed.mask()
    assert executed.values.sum() > 400_000
    assert needed.values[both].tolist() == pytest.approx(
        (executed.values[both] / 2).tolist(), abs=200
    )  # half an operation lost
    only = needed.mask() & ~both  # FFT convolutions
    assert set(view.costs.algorithm[only].tolist()) == {2}
    assert not (both & ~needed.mask()).any()
