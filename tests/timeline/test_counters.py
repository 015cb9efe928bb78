# SPDX-License-Identifier: Apache-2.0
"""Counters over time: sums in buckets are those of every nanosecond, and what is unknown is no zero."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pyprof.facts.device import concurrency
from pyprof.timeline import counters
from pyprof.timeline.counters import Buckets, Work
from tests.build import examples

Event = tuple[int, int, float | None]  # start, length, amount


def columns(events: list[Event]) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    table = np.array([(a, a + n, np.nan if x is None else x) for a, n, x in events], float).reshape(-1, 3).T
    return table[0].astype(np.int64), table[1].astype(np.int64), table[2]


@st.composite
def stretch(draw: st.DrawFn) -> tuple[int, int, int]:
    """The first bucket's beginning, the width, the number of buckets."""
    return draw(st.integers(-30, 60)), draw(st.integers(1, 40)), draw(st.integers(1, 20))


known = st.tuples(st.integers(-40, 200), st.integers(0, 90), st.integers(1, 1000).map(float))
any_ = st.tuples(st.integers(-40, 200), st.integers(0, 90), st.one_of(st.none(), st.integers(0, 1000).map(float)))


@examples(200)
@given(st.lists(known, max_size=30), stretch())
def test_an_amount_is_spread_evenly(events: list[Event], where: tuple[int, int, int]) -> None:
    low, width, count = where
    expected = np.zeros(count)
    for start, length, amount in events:
        for time in range(start, start + max(length, 1)):
            if 0 <= (time - low) // width < count:
                expected[(time - low) // width] += (amount or 0) / max(length, 1)
    np.testing.assert_allclose(counters.spread(*columns(events), *where), expected, rtol=1e-9, atol=1e-9)


@examples(200)
@given(st.lists(any_, max_size=20), stretch())
def test_time_of_tensor_cores_counts_once(events: list[Event], where: tuple[int, int, int]) -> None:
    """Kernels that may run at once; an unknown one leaves the time unknown in which no known one runs."""
    start, end, amount = columns(events)
    amounts = {"tensor": amount, "hfu": amount, "copies": amount}
    out = counters.buckets(Work(start, end, amounts, np.zeros(len(start), np.int64), 1), *where)
    low, width, count = where
    used, missing, either = (
        {t for a, n, x in events if test(x) for t in range(a, a + n)}
        for test in (lambda x: bool(x), lambda x: x is None, lambda x: x is None or x > 0)
    )

    def lengths(times: set[int]) -> list[int]:
        return [len(times & set(range(low + i * width, low + (i + 1) * width))) for i in range(count)]

    assert out.sums["tensor"].tolist() == lengths(used)
    assert out.unknown["tensor"].tolist() == lengths(either - used)
    assert out.unknown["hfu"].tolist() == lengths(missing)


@examples(200)
@given(
    st.lists(st.tuples(st.integers(-40, 200), st.integers(0, 90), st.integers(-1, 8)), max_size=20),
    stretch(),
    st.sampled_from((1, 3, 100)),
)
def test_kernels_fill_at_most_all_multiprocessors(
    events: list[tuple[int, int, int]], where: tuple[int, int, int], size: int
) -> None:
    """At each nanosecond the sum over the kernels that run, at most 8 of 8; -1 is unknown. So many events at once."""
    start, length, used = (np.array(part, np.int64) for part in (list(zip(*events)) or [()] * 3))
    amounts = {"sm": np.where(used < 0, np.nan, used * length), "copies": np.zeros(len(start))}
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(concurrency, "_AT_ONCE", size)
        out = counters.buckets(Work(start, start + length, amounts, used, 8), *where)
    low, width, count = where
    filled, missing = np.zeros(count), np.zeros(count)
    for time in range(low, low + width * count):
        running = [blocks for begin, n, blocks in events if begin <= time < begin + n]
        filled[(time - low) // width] += min(sum(max(blocks, 0) for blocks in running), 8) / 8
        missing[(time - low) // width] += -1 in running
    np.testing.assert_allclose(out.sums["sm"], filled, rtol=1e-9, atol=1e-9)
    np.testing.assert_allclose(out.unknown["sm"], missing)


@examples(200)
@given(
    st.lists(st.tuples(st.integers(-40, 200), st.one_of(st.none(), st.integers(0, 99).map(float))), max_size=30),
    stretch(),
)
def test_a_bucket_has_the_most_memory(events: list[tuple[int, float | None]], where: tuple[int, int, int]) -> None:
    events = sorted(events, key=lambda one: one[0])
    low, width, count = where
    time = np.array([at for at, _ in events], np.int64)
    value = np.array([np.nan if x is None else x for _, x in events], float)
    expected = []
    for number in range(count):
        first, last = low + number * width, low + (number + 1) * width
        inside = [x for at, x in events if first <= at < last]
        before = [x for at, x in events if at <= first]
        most = [x for x in [*inside, *before[-1:]] if x is not None]
        expected.append(max(most, default=np.nan))
    np.testing.assert_equal(counters.steps(time, value, *where).tolist(), expected)


@pytest.mark.parametrize("most", [1, 2, 3, 7, 100])
@pytest.mark.parametrize(("start", "end"), [(0, 1000), (105, 106), (33, 77), (-50, 20), (90, 5000)])
def test_buckets_are_joined(start: int, end: int, most: int) -> None:
    values = np.arange(1.0, 101.0)
    fine = Buckets(0, 10, {"copies": values}, {"copies": values % 3})
    out = counters.joined(fine, start, end, most)
    assert out.number <= most
    first = max(start // 10, 0)
    assert out.low == 10 * first
    assert out.low + out.number * out.width >= min(end, 1000)
    each = out.width // 10
    places = [range(at, min(at + each, 100)) for at in range(first, first + out.number * each, each)]
    assert out.sums["copies"].tolist() == [float(values[place].sum()) for place in places]
    assert out.unknown["copies"].tolist() == [float((values % 3)[place].sum()) for place in places]
