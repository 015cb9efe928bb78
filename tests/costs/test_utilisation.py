# SPDX-License-Identifier: Apache-2.0
"""HFU and MFU of rows, calls, steps and bins, worked out by hand; FLOPs of bins are exact and add up."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pyprof.core.model import Column
from pyprof.costs.hardware.utilisation import Work, per_bin, per_group, per_interval, per_row, within
from tests.build import examples

NAN = float("nan")
HALF, SINGLE = 2e12, 5e11  # FLOP/s: 2000 and 500 per ns


def work(*rows: tuple[int, int, int | None, int | None, float]) -> Work:
    """Rows of start, end, executed and model FLOPs, peak."""
    start, end, executed, model, peak = (list(column) for column in zip(*rows))

    def column(values: list[int | None]) -> Column:
        return Column(np.array([v or 0 for v in values], np.int64), np.array([v is not None for v in values]))

    starts, ends = np.array(start, np.int64), np.array(end, np.int64)
    return Work(starts, ends, ends - starts, column(executed), column(model), np.array(peak, float))


# A forward, its recomputation, a causal attention, an elementwise kernel in float32, and a gap to the end at 1000.
STEP = work(
    (0, 100, 100_000, 100_000, HALF),
    (100, 200, 100_000, 0, HALF),
    (300, 500, 100_000, 200_000, HALF),
    (500, 600, 5_000, 5_000, SINGLE),
)


def test_each_row_by_itself():
    found = per_row(STEP)
    assert found.hfu.tolist() == [0.5, 0.5, 0.25, 0.1]
    assert found.mfu.tolist() == [0.5, 0.0, 0.5, 0.1]


def test_a_step_counts_its_idle_time_and_each_type_by_its_own_peak():
    """HFU (300000 / 2000 + 5000 / 500) / 1000 = 160 / 1000; MFU the same: 300000 FLOPs that the model needs."""
    found = per_interval(STEP, np.array([0, 0]), np.array([1000, 200]))
    assert found.hfu.tolist() == [0.16, 0.5]
    assert found.mfu.tolist() == [0.16, 0.25]
    assert found.hfu_known.tolist() == [1.0, 1.0]
    assert per_interval(STEP, np.array([0]), np.array([1000]), devices=4).hfu.tolist() == [0.04]


def test_calls_count_the_time_of_their_rows_and_steps_by_membership_their_length():
    group = np.array([0, -1, 1, 1])
    calls = per_group(STEP, group, 3)
    assert calls.hfu[:2].tolist() == [0.5, pytest.approx(60 / 300)]
    assert calls.mfu[:2].tolist() == [0.5, pytest.approx(110 / 300)]
    assert np.isnan(calls.hfu[2]), "a call without rows took no time"
    steps = per_group(STEP, group, 2, time=np.array([200, 1000]), devices=2)
    assert steps.hfu.tolist() == [50 / 400, 60 / 2000]


def test_bins_take_their_part_of_a_row():
    """The attention from 300 to 500 lies in two bins, 50 ns worth of peak each of executed, 100 of model FLOPs."""
    found = per_bin(STEP, np.array([0, 250, 400, 650, 900]))
    assert found.hfu.tolist() == [100 / 250, 25 / 150, (25 + 10) / 250, 0.0]
    assert found.mfu.tolist() == [50 / 250, 50 / 150, (50 + 10) / 250, 0.0]


@pytest.mark.parametrize(
    ("row", "hfu", "mfu", "known"),
    [
        ((100, 200, None, None, HALF), 0.25, 0.25, (0.5, 0.5)),  # unknown FLOPs: half of the time is known
        ((100, 200, None, 40_000, HALF), 0.25, 0.35, (0.5, 1.0)),  # a block mask
        ((100, 200, 50_000, 50_000, NAN), 0.25, 0.25, (0.5, 0.5)),  # no peak
        ((100, 200, 0, 0, NAN), 0.25, 0.25, (1.0, 1.0)),  # a copy needs none
    ],
)
def test_unknown_is_not_zero_and_the_share_that_is_known_is_said(row, hfu, mfu, known):
    both = work((0, 100, 100_000, 100_000, HALF), row)
    found = per_interval(both, np.array([0]), np.array([200]))
    assert (found.hfu[0], found.mfu[0]) == (hfu, mfu)
    assert (found.hfu_known[0], found.mfu_known[0]) == known


def test_where_nothing_but_zeros_is_known_nothing_is_said():
    unknown = work((0, 50, 0, 0, NAN), (50, 200, None, None, HALF))
    found = per_interval(unknown, np.array([0, 200]), np.array([200, 300]))
    assert np.isnan(found.hfu[0])
    assert found.hfu_known[0] == 0.25
    assert (found.hfu[1], found.hfu_known[1]) == (0.0, 1.0), "idle is known to be idle"
    assert np.isnan(per_row(unknown).hfu[1])


def test_rows_and_intervals_without_length():
    found = per_row(work((5, 5, 10, 10, HALF)))
    assert np.isnan(found.hfu[0])
    assert np.isnan(per_interval(STEP, np.array([7]), np.array([7])).mfu[0])
    assert within(np.array([10]), np.array([5]), np.array([5]), np.array([0, 5]), np.array([5, 6])).tolist() == [0, 10]


def test_no_rows():
    none = np.empty(0, np.int64)
    empty = Work(none, none, none, Column(none), Column(none), np.empty(0))
    assert per_row(empty).hfu.tolist() == []
    assert per_bin(empty, np.array([0, 10])).hfu.tolist() == [0.0]


ROWS = st.lists(st.tuples(st.integers(0, 60), st.integers(0, 40), st.integers(0, 10**17)), min_size=1, max_size=6)


def arrays(rows):
    start = np.array([s for s, _, _ in rows], np.int64)
    return (
        np.array([f for _, _, f in rows], np.int64),
        start,
        start + np.array([d for _, d, _ in rows], np.int64),
    )


@examples(100)
@given(ROWS, st.lists(st.integers(0, 101), max_size=8), st.integers(1, 10**9))
def test_bins_add_up_to_the_whole_whatever_their_edges(rows, inner, scale):
    flops, start, end = arrays(rows)
    start, end = start * scale, end * scale
    edges = np.array(sorted({0, 101 * scale, *(min(i * scale + i, 101 * scale) for i in inner)}), np.int64)
    found = within(flops, start, end, edges[:-1], edges[1:])
    assert sum(found.tolist()) == sum(flops.tolist())
    assert min(found.tolist()) >= 0


@examples(100)
@given(ROWS, st.lists(st.integers(0, 101), min_size=2, max_size=8, unique=True))
def test_a_bin_has_its_part_of_each_row_but_for_the_rounding(rows, edges):
    """Against fractions, row by row: each has less than one FLOP more or less at either edge."""
    flops, start, end = arrays(rows)
    edges = sorted(edges)
    found = within(flops, start, end, np.array(edges[:-1]), np.array(edges[1:]))
    for value, low, high in zip(found.tolist(), edges, edges[1:]):
        exact = Fraction(0)
        for f, s, e in zip(flops.tolist(), start.tolist(), end.tolist()):
            if e > s:
                exact += Fraction(f * max(min(e, high) - max(s, low), 0), e - s)
            elif low <= s < high:
                exact += f
        assert abs(value - exact) < len(rows)


def test_parts_of_long_rows_are_exact():
    """100 s: the product of what is left over and the time that went by takes more than 64 bits."""
    flops, elapsed, duration = 10**17 + 99_999_999_999, 90_000_000_001, 10**11
    found = within(np.array([flops]), np.array([0]), np.array([duration]), np.array([0]), np.array([elapsed]))
    assert found.tolist() == [flops * elapsed // duration]


def test_sums_beyond_64_bits_are_exact():
    huge = np.full(5, 2**62, np.int64)
    start = np.zeros(5, np.int64)
    found = within(huge, start, start + 10**12, np.array([0, 1]), np.array([1, 10**12]))
    assert sum(found.tolist()) == 5 * 2**62
    assert found[0] == 5 * (2**62 // 10**12)


def test_more_than_the_peak_is_unknown() -> None:
    """106 % of it cannot be executed; the model may need more than is executed."""
    flops = Column(np.array([104, 106, 1161]))
    work = Work(np.zeros(3, int), np.array([100] * 3), np.array([100] * 3), flops, flops, np.array([1e9] * 3))
    found = per_row(work)
    assert found.hfu[0] == 1.04
    assert np.isnan(found.hfu[1:]).all()
    assert found.mfu.tolist() == [1.04, 1.06, 11.61]
    groups = per_group(work, np.array([0, 1, 2]), 3)
    assert np.isnan(groups.hfu).tolist() == [False, True, True]
