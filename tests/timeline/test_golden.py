# SPDX-License-Identifier: Apache-2.0
"""The bytes of tiles are frozen: databases have them, and the page reads them (frontend/tests/timeline.test.ts)."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from pyprof.timeline import tiles
from pyprof.timeline.records import Records

FOLDER = Path(__file__).resolve().parents[1] / "golden" / "timeline"
# lane, start, end, busy, events, id, name, operator
FINEST = [
    (0, -7, 5, 12, 1, 3, 2, 0),
    (0, 5, 5, 0, 1, 1 << 40, 4294967295, 1),
    (2, 1 << 45, (1 << 45) + (1 << 33), 1 << 33, 1, 1, 0, 70000),
]
MERGED = [(0, 0, 30, 11, 4, 9, 8, 7), (1, 100, 1 << 35, 1 << 34, 4294967296, 2, 1, 0)]


def packed() -> bytes:
    parts = []
    for level, rows in ((0, FINEST), (14, MERGED)):
        records = Records(*np.array(rows, np.int64).T)
        parts.append(tiles.pack(7, level, -2, records))
    return b"".join(parts)


def test_the_bytes_of_tiles(request: pytest.FixtureRequest) -> None:
    names = ("lane", "start", "end", "busy", "events", "id", "name", "operator")
    described = [
        {"track": 7, "level": level, "number": -2} | {name: [row[at] for row in rows] for at, name in enumerate(names)}
        for level, rows in ((0, FINEST), (14, MERGED))
    ]
    if request.config.getoption("--regold"):
        FOLDER.mkdir(exist_ok=True)
        (FOLDER / "tiles.bin").write_bytes(packed())
        (FOLDER / "tiles.json").write_text(json.dumps(described, indent=1) + "\n", encoding="utf-8")
    assert (FOLDER / "tiles.bin").read_bytes() == packed()
    assert json.loads((FOLDER / "tiles.json").read_text(encoding="utf-8")) == described


def test_the_first_bytes_are_as_the_description_says() -> None:
    """By hand, after the table of pyprof/timeline/tiles.py."""
    data = packed()
    assert data[:24].hex() == "03000000030000000000000007000000feffffffffffffff"
    assert data[24:40].hex() == "02000000000000000100000000000000"  # records of lanes, padded
    assert data[40:64].hex() == "f9ffffffffffffff0c000000000000000000000000200000"  # -7; 5 - -7; 2^45
