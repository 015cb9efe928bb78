# SPDX-License-Identifier: Apache-2.0
"""Reports that read the recording in pieces say what they say of the whole, and hold few rows at once."""

from __future__ import annotations

import gzip
import random
import shutil
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pyprof import session
from pyprof.analysis import host_parts, idle_gaps, tree_pieces
from pyprof.analysis.stretches import EVER, stretches
from pyprof.errors import FormatError
from pyprof.store import packed
from pyprof.store.files import Store
from tests import kineto
from tests.build import Kernel, Launch, Op, Range, Recording, call, examples, scratch
from tests.reports.test_oracle import load
from tests.reports.test_stretches import with_copies

TRACES = Path(__file__).parents[1] / "traces/gpu"
REPORTS: tuple[tuple[str, dict[str, str]], ...] = (
    ("idle", {"group_by": "place"}), ("idle", {"group_by": "cause"}), ("operator", {"group_by": "name"}),
    ("operator", {"group_by": "shapes"}), ("kernel_summary", {"group_by": "name"}),
    ("kernel_summary", {"group_by": "properties"}),
)  # fmt: skip


def forget(prof: session.Profile) -> None:
    """Let the idle time be computed again."""
    known = prof.source().store._known
    for key in [key for key in known if isinstance(key, tuple) and key[0] == "idle"]:
        del known[key]


def check(prof: session.Profile, *sizes: int) -> None:
    """Compare pieces of so many rows, and so many gaps, with the whole."""
    whole = [prof.report(name, **options) for name, options in REPORTS]
    for size in sizes:
        forget(prof)
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(packed, "MOST_ROWS", size)
            patch.setattr(idle_gaps, "_AT_ONCE", size)
            for (name, options), expected in zip(REPORTS, whole):
                assert prof.report(name, **options).equals(expected), (name, options, size)


@pytest.mark.parametrize(
    "name",
    ["attention.sqlite", "graph_replay.sqlite", "loader_workers.pt.trace.json", "two_streams.pt.trace.json"],
)
def test_pieces_of_our_recordings_say_what_the_whole_says(name):
    path = Path(scratch()) / name
    path.write_bytes(gzip.decompress((TRACES / f"{name}.gz").read_bytes()))
    check(session.load(path), 97)


@pytest.mark.parametrize(
    "name",
    [
        "kineto/dlrm_v100_8ranks.tar.gz",
        "kineto/mi300_resnet_act_checkpoint.json.gz",
        "nsys/h100_2gpu_1s.sqlite",
    ],
)
def test_pieces_of_recordings_of_others_say_what_the_whole_says(data, name):
    check(session.load(data / name), 1500)


@examples(5)
@given(seed=st.integers(0, 1 << 32))
def test_pieces_of_any_size_say_what_the_whole_says(seed):
    check(load(with_copies(seed)), 1, random.Random(seed).randint(2, 20))


def layers(count: int) -> Recording:
    """Operators inside one another, each with two kernels, and an event around every ten of them."""
    what = Recording()
    for i in range(count):
        start = 1000 * i
        if i % 10 == 0:
            what.ops.append(Op(call("aten::linear", (4, 4), (4, 4)), start, start + 9990))
        what.ops.append(Op(call("aten::mm", (4, 4), (4, 4)), start + 10, start + 500))
        what.ranges.append(Range("data", start + 600, start + 700))
        for j in range(2):
            what.launches.append(Launch(start + 20 + 30 * j, start + 30 + 30 * j, 2 * i + j + 1))
            what.kernels.append(Kernel("sgemm", start + 200 + 300 * j, start + 250 + 300 * j, 2 * i + j + 1))
    return what


def test_a_piece_has_few_rows(monkeypatch):
    """What is open at an end waits: ten operators of two events and their calls at most."""
    prof, size = load(layers(200)), 16
    check(prof, size)
    held: dict[str, list[int]] = {"tree": [], "piece": [], "waiting": []}
    tree_of, init = tree_pieces.tree_of, host_parts.Piece.__init__
    read: list[tuple[str, int]] = []
    parts = Store.parts

    def grown(activity: Any, events: Any, *others: Any) -> Any:
        held["tree"].append(len(events["id"].values) + len(activity.call["id"].values) + len(activity.id))
        return tree_of(activity, events, *others)

    def made(self: Any, activity: Any, spans: Any, end: int) -> None:
        held["piece"].append(sum(len(one.start) for one in spans))
        init(self, activity, spans, end)

    def part(self: Store, table: str, *others: Any) -> Any:
        for one in parts(self, table, *others):
            read.append((table, len(next(iter(one.values())).values)))
            yield one

    monkeypatch.setattr(tree_pieces, "tree_of", grown)
    monkeypatch.setattr(host_parts.Piece, "__init__", made)
    monkeypatch.setattr(Store, "parts", part)
    monkeypatch.setattr(packed, "MOST_ROWS", size)
    monkeypatch.setattr(idle_gaps, "_AT_ONCE", size)
    forget(prof)
    for name, options in REPORTS:
        prof.report(name, **options)
    assert {table for table, _ in read} == {"range", "op", "api", "event"}
    assert max(rows for _, rows in read) <= size
    assert len(held["tree"]) > 20
    assert max(held["tree"]) <= 2 * 3 * size + 11 + 2 * 20  # of three tables, and what waited
    assert len(held["piece"]) > 20
    assert max(held["piece"]) <= 2 * 2 * size + 2


def test_a_stretch_ends_where_the_first_table_was_read_to():
    rows = [{"start": np.array(part)} for part in ([], [3, 3], [3], [3, 8, 9])]
    others = [{"start": np.array(part)} for part in ([0, 1], [20], [21, 22])]
    found = [
        (end, one["start"].tolist(), other["start"].tolist())
        for end, (one, other) in stretches([iter(rows), iter(others)])
    ]
    assert [end for end, *_ in found][-1] == EVER
    assert [time for _, one, _ in found for time in one] == [3, 3, 3, 3, 8, 9]
    assert [time for _, _, other in found for time in other] == [0, 1, 20, 21, 22]
    begin = -1
    for end, *both in found:
        assert all(begin <= time < end for times in both for time in times)
        begin = end


def test_rows_in_another_order_are_damage():
    path = Path(scratch()) / "order_dldb.sqlite"
    load(layers(20)).save(path)
    for table in ("range", "op"):
        other = path.with_name("other_dldb.sqlite")
        shutil.copyfile(path, other)
        with closing(sqlite3.connect(other)) as connection, connection:
            connection.execute(
                f"update {table} set start_ns = start_ns - 20000 where id = (select max(id) from {table})"
            )
        with pytest.raises(FormatError, match=f"table {table} is not in the order of its times"):
            session.load(other).report("idle")


def test_a_gap_waits_for_an_operator_that_begins_many_pieces_later(tmp_path: Path):
    """The kernel after it was launched outside of operators, and its thread begins the next one after 40 others of
    another thread."""
    events = [
        kineto.op("aten::mm", 0, 10_000), kineto.launch(2_000, 4_000, 1), kineto.kernel("gemm", 5_000, 20_000, 1),
        kineto.launch(50_000, 52_000, 2), kineto.kernel("gemm", 60_000, 70_000, 2),
        *(kineto.op("aten::add", start, start + 500, tid=202) for start in range(53_000, 93_000, 1_000)),
        kineto.op("aten::relu", 100_000, 110_000), kineto.launch(101_000, 102_000, 3),
        kineto.kernel("relu", 103_000, 104_000, 3),
    ]  # fmt: skip
    prof = session.load(kineto.write(tmp_path / "trace.json", events))
    (gap,) = prof.report("idle").query("longest_ns == 40_000").to_dict("records")
    assert (gap["cause"], gap["where"], gap["operator"]) == ("launch-bound", "before", "relu")
    check(prof, 1, 3)


def test_calls_around_a_border_are_counted_once(tmp_path: Path):
    """A call of an operator has others inside it, in other pieces; what they launch is the outermost one's, too."""
    events = [
        kineto.op("aten::conv2d", 0, 200_000),
        *(kineto.op("aten::mm", start, start + 8_000) for start in range(1_000, 191_000, 10_000)),
        *(kineto.launch(start + 1_000, start + 2_000, start) for start in range(1_000, 191_000, 10_000)),
        *(
            kineto.kernel("gemm", start + 3_000, start + 4_000, start)
            for start in range(1_000, 191_000, 10_000)
        ),
    ]
    prof = session.load(kineto.write(tmp_path / "trace.json", events))
    table = prof.report("operator", group_by="name").set_index("name")
    assert (table.loc["aten::conv2d", "calls"], table.loc["aten::mm", "calls"]) == (1, 19)
    assert table.loc["aten::conv2d", "device_total_ns"] == table.loc["aten::mm", "device_total_ns"] == 19_000
    assert table.loc["aten::conv2d", "host_total_ns"] == 200_000
    check(prof, 1, 3)
