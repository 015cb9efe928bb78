# SPDX-License-Identifier: Apache-2.0
"""Operators as columns are what a list of them would be."""

from __future__ import annotations

from collections import Counter

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from pyprof.capture.core.operators import COLUMNS, Operator, Operators
from pyprof.core.model import Call

CALLS = [Call("aten", name, ()) for name in ("aten::add", "aten::mm", "AccumulateGrad")]
ROWS = st.lists(
    st.tuples(
        st.integers(0, 99), st.integers(0, 9), st.integers(1, 3), st.integers(0, len(CALLS) - 1), st.integers(0, 1),
        st.integers(-1, 5), st.integers(-1, 3),
    ),
    max_size=30,
)  # fmt: skip


def both(rows: list[tuple[int, ...]]) -> tuple[Operators, list[Operator]]:
    table = [(start, start + length, *rest, -1) for start, length, *rest in rows]
    expected = [
        Operator(a, b, tid, CALLS[n], scope, None if seq < 0 else seq, None if forward < 0 else forward)
        for a, b, tid, n, scope, seq, forward, _ in table
    ]
    return Operators(np.array(table, np.int64).reshape(-1, COLUMNS), list(CALLS)), expected


@given(ROWS, ROWS, st.data())
def test_columns_are_what_a_list_would_be(
    first: list[tuple[int, ...]], second: list[tuple[int, ...]], data: st.DataObject
) -> None:
    operators, expected = both(first)
    for place in data.draw(st.sets(st.integers(0, max(len(first) - 1, 0)), max_size=len(first))):
        call = Call("autograd", f"named {place}", ())
        operators.name(place, call, f"module {place}")
        expected[place] = expected[place]._replace(call=call, module=f"module {place}")
    more, others = both(second)
    if second:
        more.name(0, CALLS[0], "of the second")
        others[0] = others[0]._replace(call=CALLS[0], module="of the second")
    operators.extend(more)
    expected += others
    assert list(operators) == [operators[place] for place in range(len(operators))] == expected
    assert operators.start.tolist() == [one.start for one in expected]
    in_order = sorted(expected, key=lambda one: (one.start, -one.end))
    assert list(operators.in_order()) == in_order
    assert {tid: list(mine) for tid, mine in operators.in_order().by_thread().items()} == {
        tid: [one for one in in_order if one.tid == tid] for tid in {one.tid for one in expected}
    }
    counted: Counter[tuple[Call, str]] = Counter()
    for operator, count in operators.counted():
        counted[operator.call, operator.module] += count
    assert counted == Counter((one.call, one.module) for one in expected)
    distinct, which = operators.distinct()
    assert [distinct[number] for number in which.tolist()] == [(one.call, one.module) for one in expected]


@given(ROWS)
def test_places_of_a_name(rows: list[tuple[int, ...]]) -> None:
    operators, expected = both(rows)
    assert operators.places("aten::mm").tolist() == [
        place for place, one in enumerate(expected) if one.call.op == "aten::mm"
    ]
