# SPDX-License-Identifier: Apache-2.0
"""Work of the rows of sums over a stretch of time: of the whole run that of the reports, of a part what is inside."""

from __future__ import annotations

import shutil
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from pyprof import profiles
from pyprof.store.kinds import IS_KERNEL
from tests.server import planted_ranks as planted
from tests.server.conftest import Asking, serving

RECORDING = Path(__file__).resolve().parents[1] / "traces/gpu/operators.pt.trace.json.gz"


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A database of a recording whose kernels have FLOPs, on a GPU with a known peak."""
    path = tmp_path_factory.mktemp("selection") / "net_dldb.sqlite"
    profiles.load(RECORDING).save(path)
    return path


@pytest.fixture(scope="module")
def partly(recorded: Path) -> Path:
    """The same, but FLOPs, bytes and times at the peak of some kernels are unknown, or zero."""
    path = recorded.with_name("partly_dldb.sqlite")
    shutil.copy(recorded, path)
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute("update event set flops = null where id % 3 = 0")
        connection.execute("update event set bytes = null where id % 7 > 0")
        connection.execute("update event set hardware_ps = null where id % 5 > 1")
        connection.execute("update event set hardware_ps = 0 where id % 5 = 0")
        connection.execute("update event set model_ps = null where operator % 4 = 0")
    return path


@pytest.fixture(scope="module")
def served(recorded: Path) -> Iterator[Asking]:
    with serving(recorded) as asking:
        yield asking


def span(prof: profiles.Profile) -> tuple[int, int]:
    low, high = prof.database.rows("select min(start_ns), max(start_ns + duration_ns) from event")[0]
    return low, high + 1


def test_of_the_whole_run_it_is_the_report(recorded: Path, served: Asking) -> None:
    """HFU and MFU of operators, and of the kernels of each, where one row stands for a row of the report."""
    prof = profiles.load(recorded)
    low, high = span(prof)
    rows = served.json("/api/timeline/flame", start=low, end=high, work=True)["rows"]
    shown = {(row["module"], row["kernel"]): row["work"] for row in rows}
    known = partly_known = 0
    for name, keys in (("detail", ["name"]), ("kernel", ["name", "kernel"])):
        report = prof.report(name)
        if name == "kernel":
            report = report[report["kind"] == "kernel"]
        report = report.drop_duplicates(keys, keep=False)  # forward and backward are one row here
        for row in report.astype(object).where(report.notna(), None).to_dict("records"):
            work = shown.get((row["name"], row["kernel"] if name == "kernel" else None))
            if work is None:
                assert not row["gpu"], row
                continue
            assert work["hfu"] == (None if row["hfu"] is None else pytest.approx(row["hfu"])), row
            assert work["mfu"] == (None if row["mfu"] is None else pytest.approx(row["mfu"])), row
            known += work["hfu"] is not None
            partly_known += 0 < work["hfu_unknown"] < work["kernels"] and work["hfu"] is not None
    assert known > 20
    assert partly_known


class Event(NamedTuple):
    """An event of the database, and how much of it is inside."""

    kernel: bool
    labels: dict[str, str]
    path: str
    inside: int
    share: float
    amounts: dict[str, int | None]


def events(prof: profiles.Profile, start: int, end: int) -> list[Event]:
    query = f"""select {IS_KERNEL.replace("kind", "e.kind")}, e.start_ns, e.duration_ns, e.flops, e.bytes,
        e.hardware_ps, e.model_ps, o.type, o.name, o.module, coalesce(k.short_name, k.name), k.kind
        from event e left join operator o on o.id = e.operator left join kernel_name k on k.id = e.name"""
    out = []
    for kernel, begin, length, flops, bytes_, hardware, model, *labels in prof.database.rows(query):
        inside = min(begin + length, end) - max(begin, start)
        if inside > 0:
            amounts = {"flops": flops, "bytes": bytes_, "hfu": hardware, "mfu": model}
            keys = dict(zip(("type", "operator", "module", "kernel", "kind"), labels))
            path = labels[1] or ""
            for key, label in keys.items():
                if label is None:
                    nameless = "outside of modules" if key == "module" else f"no {key}"
                    keys[key] = nameless if labels[1] is not None else "no operator"
            out.append(Event(bool(kernel), keys, path, inside, inside / length, amounts))
    return out


def work(own: list[Event]) -> dict[str, Any]:
    """What the work of a row has to be."""
    kernels = [one for one in own if one.kernel]
    out: dict[str, Any] = {"kernels": len(kernels)}
    for key in ("flops", "bytes", "hfu", "mfu"):
        known = [one for one in kernels if one.amounts[key] is not None]
        amount: float | None = sum((one.amounts[key] or 0) * one.share for one in known)
        out[f"{key}_unknown"] = len(kernels) - len(known)
        if key in ("hfu", "mfu"):
            time = sum(one.inside for one in known)
            only_zeros = not amount and len(known) < len(kernels)
            amount = 100 * amount / 1000 / time if time and not only_zeros else None
        elif kernels and not known:
            amount = None
        out[key] = amount if amount is None else pytest.approx(amount)
    return out


@pytest.mark.parametrize("part", ["whole", "between two kernels", "nothing"])
def test_of_a_part_it_is_what_is_inside(partly: Path, part: str) -> None:
    """Of the rows of each table, of all of them together, and of the nodes of the tree."""
    prof = profiles.load(partly)
    start, end = span(prof)
    middles = [
        begin + length // 3
        for begin, length in prof.database.rows(
            f"select start_ns, duration_ns from event where {IS_KERNEL} and flops > 0 order by start_ns"
        )
    ]
    if part == "between two kernels":
        start, end = middles[len(middles) // 4], middles[len(middles) * 3 // 4]
    elif part == "nothing":
        times = prof.database.rows("select start_ns, start_ns + duration_ns from event order by start_ns")
        _, start, end = max((after - end, end, after) for (_, end), (after, _) in pairwise(times))
    inside = events(prof, start, end)
    assert sum(one.share < 1 for one in inside) == (2 if part == "between two kernels" else 0)
    assert bool(inside) == (part != "nothing")
    with serving(partly) as client:
        tables = client.json("/api/timeline/selection", start=start, end=end, work=True)["tables"]
        tree = client.json("/api/timeline/flame", start=start, end=end, work=True)
        without = client.json("/api/timeline/selection", start=start, end=end)["tables"]
    for table in tables:
        assert table["work"] == work(inside), table["key"]
        for row in table["rows"]:
            own = [one for one in inside if one.labels[table["key"]] == row["label"]]
            assert (row["time"], row["count"]) == (sum(one.inside for one in own), len(own)), row["label"]
            assert row["work"] == work(own), (table["key"], row["label"])
    for table, plain in zip(tables, without):
        assert plain == {**table, "work": None, "rows": [{**row, "work": None} for row in table["rows"]]}
    above: list[dict[str, Any]] = []
    for row in tree["rows"]:
        own = [one for one in inside if f"{one.path}/".startswith(f"{row['module']}/")]
        if row["kernel"] is not None:
            own = [one for one in own if one.path == row["module"] and one.labels["kernel"] == row["kernel"]]
        assert (row["total"], row["count"]) == (sum(one.inside for one in own), len(own)), row
        assert row["work"] == work(own), row
        above = above[: row["depth"]]
        if above:
            around = above[-1]
            assert around["kernel"] is None
            assert around["module"] == (row["module"] if row["kernel"] else row["module"].rpartition("/")[0])
        above.append(row)
    assert {(one.path, one.labels["kernel"]) for one in inside} == {
        (row["module"], row["kernel"]) for row in tree["rows"] if row["kernel"] is not None
    }


def test_sums_are_of_each_rank_by_its_own_clock(tmp_path: Path) -> None:
    stretch = 1_000_000, 6_000_000
    profiles.load(planted.write(tmp_path / "run")).save(tmp_path / "run_dldb.sqlite")
    with serving(tmp_path / "run_dldb.sqlite") as asking:
        devices = asking.json("/api/timeline/selection", start=stretch[0], end=stretch[1])["devices"]
    busy = {rank: planted.busy(rank, *stretch) for rank in range(planted.RANKS)}
    assert {one["worker"]: one["busy"] for one in devices} == busy
