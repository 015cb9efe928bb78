# SPDX-License-Identifier: Apache-2.0
"""Times of a trace, whatever stands there, are what decimal arithmetic makes of them; they count from the
earliest of all that the recording has."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from decimal import Decimal, InvalidOperation
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pyprof.parse import loader
from pyprof.parse.tracejson.times import nanoseconds
from tests.build import Op, Recording, write_capture

_EDGES = (
    "0.0005", "0.0015", "-0.0005", "-0.0015", "0.00051", "1.00049999", "007.5", "-0", ".5", "5.", "1e3", "12.5",
    "1.2.3", "9" * 18, "9" * 19, "4611686018427387.903", "4611686018427387.904", "12345678901234567890.5", "", "null",
    "0.000000000000000000001", "1419116104654.576", "1\n2", "-",
)  # fmt: skip
_NUMBERS = st.decimals(min_value=-(10**16), max_value=10**16, places=5, allow_nan=False).map(lambda d: f"{d:f}")
_WHOLE = st.integers(-(10**19), 10**19) | st.integers(-(10**16), 10**16)
_FLOATS = st.floats(0, 1e13).map(repr)


def expected(time: int | str) -> int | None:
    try:
        number = Decimal(time) * 1000
    except InvalidOperation:
        return None
    return int(number.to_integral_value()) if number.is_finite() and abs(number) < 1 << 62 else None


@given(
    st.lists(st.one_of(_NUMBERS, _WHOLE, _FLOATS, st.sampled_from(_EDGES)), max_size=6) | st.lists(_WHOLE, max_size=6)
)
def test_times_are_those_of_decimal_arithmetic(times: list[int | str]) -> None:
    found = nanoseconds(times)
    assert [value if there else None for value, there in zip(found.values.tolist(), found.mask().tolist())] == [
        *map(expected, times)
    ]


@pytest.mark.parametrize("earliest", ["step", "pause", "allocation", "operator"])
def test_the_earliest_of_all_is_time_zero(earliest: str, tmp_path: Path) -> None:
    """One of them is at 10 ns, the others at 30, 50 and 70."""
    first = dict(zip([earliest, *({"step", "pause", "allocation", "operator"} - {earliest})], (10, 30, 50, 70)))
    start = first["operator"]
    path = write_capture(tmp_path / "f", Recording(ops=[Op("aten::relu", start, 99)]))
    with closing(sqlite3.connect(path)) as database:
        database.execute(
            "insert into PYPROF_STEP (number, start, end, globalTid) values (0, ?, 99, 1)", (first["step"],)
        )
        database.execute("create table PYPROF_PAUSE (globalTid, start, end, what)")
        database.execute("insert into PYPROF_PAUSE values (1, ?, 99, 'reading')", (first["pause"],))
        database.execute(
            "create table PYPROF_MEMORY (time, globalTid, address, bytes, allocated, reserved, device, deviceId)"
        )
        database.execute("insert into PYPROF_MEMORY values (?, 1, 5, 8, 8, 8, 'cpu', null)", (first["allocation"],))
        database.commit()
    trace = loader.load(path)
    found = {"step": trace.steps.start, "pause": trace.pauses.start, "allocation": trace.memory.time,
             "operator": trace.ops.start}  # fmt: skip
    assert {name: int(times[0]) for name, times in found.items()} == {name: t - 10 for name, t in first.items()}
