# SPDX-License-Identifier: Apache-2.0
"""Questions to tables and trees, with the server's answers: frontend/tests/inline.test.ts asks the page the same, since
a file of `pyprof page` filters and sorts without a server."""

from __future__ import annotations

import json
import random
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

from pyprof.reports import Column
from pyprof.views.column_table import Frame, arrow
from pyprof.views.problems import Trouble
from pyprof.views.queries import PageQuery
from pyprof.views.report_pages import page
from pyprof.views.tree import Tree
from pyprof.views.tree_reports import columns_of

GOLDEN = Path(__file__).parents[1] / "golden" / "page" / "tables.json"
COLUMNS = (
    Column("name", "Name", "", "A text.", str),
    Column("time", "Time", "ns", "A time."),
    Column("share", "Share", "%", "A share.", float),
    Column("bytes", "Bytes", "B", "A size."),
    Column("tc", "TC", "", "A boolean.", bool),
    Column("value", "Value", "", "Anything.", object),
    Column("rate", "Rate", "FLOP/s", "A rate.", float),
)
TEXTS = (
    "conv1", "Conv1", "CONV10", "straße", "STRASSE", "ΣΊΣΥΦΟΣ", "Σίσυφος", "ıI", "Ünï", "a.py:1\nb.py:22", "b.py:22",
    "</script><b>", "𝔘ﬀ", "\uffee", "", "1.5", "12", "aten::mm", "layer/0/mm", "éclair", "Zürich", "zz",
)  # fmt: skip
SORTS = (
    "",
    *(sign + column.key for column in COLUMNS for sign in ("", "-")),
    "tc,-time",
    "-share,name",
    "name,-bytes",
)
SEARCHES = (
    "",
    "",
    "conv",
    "CONV1",
    "strasse",
    "12",
    "1,2",
    "e+1",
    ".5",
    " zz ",
    "σ",
    "null",
    "{",
    "-3",
    "ﬀ",
    "+",
)
CONDITIONS = {
    "name": ("conv", "=Conv1", "=b.py:22", "STRASSE", "?", "!?", "σίσυφος", " zz", "=", "ü"),
    "time": (">5us", "<=2.5ms", "10..20us", "12", "=7", "5us", "?", "!?", "1_0", "<-3", "0..1e6", ">= 1,000"),
    "share": (">50", "<=12.5%", "0..1", ".5", "0.1", "?", "!?", "1e-7", "=100"),
    "bytes": (">1KB", "<=2MiB", "1..2MB", "4096", "=4KiB", "?", "!?"),
    "tc": ("1", "0", "?", "!?", " 1 ", "Yes", "n"),
    "value": ("a", "=1", "12", "?", "!?", '="a"', "[1, 2]"),
    "rate": (">1e12", "12", "1e+12", "?", "!?", "<1e9", "="),
}
WRONG = (
    {"sort": "nothing"}, {"filter": ["nothing:1"]}, {"filter": ["name"]}, {"filter": ["time:>5kg"]},
    {"filter": ["time:>x"]}, {"filter": ["tc:2"]}, {"filter": ["rate:>1ns"]}, {"filter": ["time:1..2..3"]},
)  # fmt: skip


def some_rows(draw: random.Random, count: int) -> pd.DataFrame:
    def maybe(value: Any) -> Any:
        return None if draw.random() < 0.15 else value

    floats = (0.1, 0.5, 1.5, 12.5, 100.0, 1e-7, 0.00012, 1 / 3, 99.99, 50.0)
    rates = (1e12, 1.2e12, 3.3e9, 123456789.0, 1.25e10, 5e8, 0.0, 12.0, 1e16, 1234567.891)
    values = (1, 12, "a", "12", "ä", 2.5, 1.0, True)
    times = (0, 7, 12, 120, 5000, 10**6, -35, 15_000)
    sizes = (0, 4096, 1 << 20, 2 * 10**6)

    def number(choices: Sequence[int], most: int) -> Any:
        return maybe(draw.choice((*choices, draw.randrange(most))))

    columns: dict[str, Any] = {
        "name": [maybe(draw.choice(TEXTS)) for _ in range(count)],
        "time": pd.array([number(times, 10**7) for _ in range(count)], "Int64"),
        "share": [maybe(draw.choice(floats)) for _ in range(count)],
        "bytes": pd.array([number(sizes, 10**9) for _ in range(count)], "Int64"),
        "tc": pd.array([maybe(draw.random() < 0.5) for _ in range(count)], "boolean"),
        "value": pd.Series([maybe(draw.choice(values)) for _ in range(count)], dtype=object),
        "rate": [maybe(draw.choice(rates)) for _ in range(count)],
    }
    return pd.DataFrame(columns)


def a_query(draw: random.Random) -> dict[str, Any]:
    keys = draw.choices(list(CONDITIONS), k=draw.choice((0, 0, 1, 1, 2)))
    return {
        "sort": draw.choice(SORTS),
        "search": draw.choice(SEARCHES),
        "filter": [f"{key}:{draw.choice(CONDITIONS[key])}" for key in keys],
        "offset": draw.choice((0, 0, 10)),
        "limit": 10,
    }


def a_tree(draw: random.Random) -> Tree:
    """A tree of nodes whose parents come first."""
    columns = columns_of("modules")
    parent = [-1, 0, 0, 1, 1, 2, 3, 3, -1, 8, 8, 5]
    names = ["net", ".a", ".b", ".Conv", ".1", ".x", ".mm", ".MM", "other", ".a", ".straße", ".mm"]
    paths: list[str] = []
    for at, name in enumerate(names):
        paths.append((paths[parent[at]] if parent[at] >= 0 else "") + name)
    arrays = {"path": paths, "name": names, "group": [True] * len(names), "parent": np.array(parent)}
    for column in columns:
        cells: list[Any] = [draw.choice((None, 0, 3, 17)) for _ in names]
        if column.kind is str:
            cells = [draw.choice((None, "a", "B")) for _ in names]
        kind = {str: pa.string(), bool: pa.bool_(), float: pa.float64(), int: pa.int64()}[column.kind]
        arrays[column.key] = pa.array(
            [None if c is None else c if column.kind is str else column.kind(c) for c in cells], kind
        )
    return Tree(({"complete": True}, pa.table(arrays)), "modules")


def plain(model: Any) -> Any:
    return json.loads(model.model_dump_json())


def answers() -> dict[str, Any]:
    """The rows of a table and of a tree, and what is answered to questions about them."""
    draw = random.Random(7)
    data = some_rows(draw, 60)
    frame = Frame(arrow(data, COLUMNS), COLUMNS)
    whole = plain(page(frame, PageQuery(limit=1000), True, ["time", "bytes"]))
    at = [column.key for column in COLUMNS].index("value")
    out: dict[str, Any] = {
        "table": {
            "answer": {key: value for key, value in whole.items() if key not in ("rows", "ids", "offset")},
            "rows": whole["rows"],
            "ids": whole["ids"],
            "texts": {str(at): [None if row[at] is None else json.dumps(row[at]) for row in whole["rows"]]},
        },
        "questions": [],
    }
    for query in [a_query(draw) for _ in range(400)] + [
        {"sort": "", "search": "", "filter": [], "offset": 0, "limit": 10, **one} for one in WRONG
    ]:
        try:
            asked = PageQuery(query["sort"] or None, query["search"], query["filter"], query["offset"], query["limit"])
            answer = plain(page(frame, asked, True, ["time", "bytes"]))
            reply = {key: answer[key] for key in ("ids", "filtered", "total", "totals")}
        except Trouble as trouble:
            reply = {"problem": str(trouble)}
        out["questions"].append([query, reply])
    tree = a_tree(draw)
    everything = plain(tree.page(0, 1000, None, "", "all"))
    out["tree"] = {
        "answer": {key: value for key, value in everything.items() if key not in ("nodes", "rows", "offset", "open")},
        "nodes": everything["nodes"],
        "rows": everything["rows"],
    }
    numeric = [column.key for column in columns_of("modules") if column.kind is not str][:2]
    out["unfolded"] = []
    for _ in range(120):
        opened = draw.choice(
            (None, "none", "all", *[",".join(draw.sample(tree.keys, 2)), "all," + draw.choice(tree.keys)])
        )
        sort = draw.choice((None, "name", "-name", *numeric, *(f"-{key}" for key in numeric)))
        query = {
            "sort": sort,
            "search": draw.choice(("", "", "mm", "NET", "strasse", "a.mm", "x")),
            "open": opened,
            "offset": draw.choice((0, 0, 3)),
            "limit": 10,
        }
        answer = plain(tree.page(query["offset"], query["limit"], sort, query["search"], opened))
        out["unfolded"].append(
            [query, {key: answer[key] for key in ("nodes", "rows", "open", "filtered", "total", "offset")}]
        )
    return out


def test_the_golden_answers_are_the_servers(request: pytest.FixtureRequest):
    text = json.dumps(answers(), ensure_ascii=True, separators=(",", ":")) + "\n"
    if request.config.getoption("--regold"):
        GOLDEN.write_text(text, encoding="utf-8")
    assert GOLDEN.read_text(encoding="utf-8") == text


def test_the_questions_are_of_every_kind():
    questions = json.loads(GOLDEN.read_text(encoding="utf-8"))["questions"]
    assert sum("problem" in reply for _, reply in questions) >= len(WRONG)
    narrowed = [reply["filtered"] for _, reply in questions if "problem" not in reply]
    assert sum(0 < count < 60 for count in narrowed) > 200
