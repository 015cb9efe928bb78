# SPDX-License-Identifier: Apache-2.0
"""Calls of the API: worked out from the lines of recordings."""

from __future__ import annotations

import random
from statistics import median

import numpy as np
import pandas as pd
import pytest

from pyprof.measures.queries import distribution
from tests import kineto
from tests.build import recording
from tests.reports.test_oracle import load, rows

FIGURES = ("calls", "total_ns", "mean_ns", "median_ns", "p95_ns", "min_ns", "max_ns", "kernels", "copies")


def test_calls_by_name_with_what_they_launched(prof):
    """A launch takes 4 ns in these recordings; a step has 5 kernels, a copy and a set, and a wait of 40 ns."""
    found = {row["name"]: row for row in rows(prof.report("api_calls"))}
    assert list(found) == ["cudaStreamSynchronize", "cudaLaunchKernel"]
    assert tuple(found["cudaStreamSynchronize"][key] for key in FIGURES) == (2, 80, 40, 40, 40, 40, 40, 0, 0)
    # 2 x (4 kernels, a copy, a set), and one at the end; one more kernel has no launch record
    assert tuple(found["cudaLaunchKernel"][key] for key in FIGURES) == (13, 52, 4, 4, 4, 4, 4, 9, 4)
    assert found["cudaStreamSynchronize"]["kind"] == "sync"
    start, end = prof.steps["start_ns"].min(), prof.steps["end_ns"].max()
    assert found["cudaLaunchKernel"]["share"] == pytest.approx(100 * 52 / (end - start))


def test_one_step_has_its_own_calls(prof):
    prof.aggregate(0, 0)
    calls = {row["name"]: row["calls"] for row in rows(prof.report("api_calls"))}
    prof.aggregate(0, 1)
    assert calls == {"cudaStreamSynchronize": 1, "cudaLaunchKernel": 6}


def test_threads_and_versions_of_a_function():
    """Versions of one function are one; a share is per thread, so that of two threads it is their mean."""
    what = recording(
        """
> 100 k
api 30 cudaMalloc_v3020
thread 2
api 50 cudaMalloc_v11000
api 10 cudaMalloc_v3020
"""
    )
    prof = load(what)
    window = prof.steps["duration_ns"].sum()
    one = next(row for row in rows(prof.report("api_calls")) if row["name"] == "cudaMalloc")
    assert (one["calls"], one["total_ns"], one["median_ns"], one["kind"]) == (3, 90, 30, "malloc")
    assert one["share"] == pytest.approx(100 * 45 / window)
    apart = [row for row in rows(prof.report("api_calls", by="thread")) if row["name"] == "cudaMalloc"]
    assert [(row["thread"], row["calls"], row["total_ns"]) for row in apart] == [(2, 2, 60), (1, 1, 30)]
    assert [row["share"] for row in apart] == [
        pytest.approx(100 * 60 / window),
        pytest.approx(100 * 30 / window),
    ]


def test_a_graph_launch_has_all_kernels_of_its_replay():
    prof = load(recording("> 10 graph=1 a\n+ 10 graph=2 b\n+ 10 graph=3 c\n> 10 d"))
    (row,) = rows(prof.report("api_calls"))
    assert (row["calls"], row["kernels"]) == (2, 4)


def test_a_recording_without_calls_has_no_rows(on_cpu, tmp_path):
    from pyprof import profiles

    assert rows(on_cpu.report("api_calls")) == []
    path = kineto.write(tmp_path / "a.json", [kineto.kernel("k", 0, 10, 1)])
    assert rows(profiles.load(path).report("api_calls")) == []


@pytest.mark.parametrize("seed", range(5))
def test_distributions_are_those_of_sorted_lists(seed):
    dice = random.Random(seed)
    lists = [[dice.randint(0, 50) for _ in range(dice.choice([0, 1, 2, 3, 19, 20, 21, 100]))] for _ in range(8)]
    pairs = [(group, value) for group, values in enumerate(lists) for value in values]
    dice.shuffle(pairs)
    group, values = np.array(pairs or [(0, 0)]).T
    found = distribution(group, values, len(lists))
    for place, one in enumerate(lists):
        row = found.iloc[place]
        assert (row["calls"], row["total"]) == (len(one), sum(one))
        if not one:
            assert pd.isna(row[["mean", "median", "p95", "min", "max"]].to_list()).all()
            continue
        ordered = sorted(one)
        p95 = next(value for value in ordered if sum(other <= value for other in one) >= 0.95 * len(one))
        assert (row["mean"], row["median"]) == (sum(one) / len(one), median(one))
        assert (row["p95"], row["min"], row["max"]) == (p95, ordered[0], ordered[-1])
