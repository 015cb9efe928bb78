# SPDX-License-Identifier: Apache-2.0
"""Two runs side by side: what is matched with what, and that nothing of either is lost or counted twice."""

from __future__ import annotations

import csv
import io
import random
import sqlite3
from contextlib import closing
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from pyprof import profiles
from pyprof.core.errors import UsageError
from pyprof.reports.diff import cautions
from tests import cli
from tests.build import call, recording, write_capture
from tests.reports.test_oracle import load, rows


def mm(n: int, module: str | None, name: str = "torch.mm") -> str:
    return call(name, (n, 32), (32, 16), module=module, trace=(f"net.py:{n}",))


def write(path: Path, text: str) -> Path:
    return write_capture(path, recording(text))


# a changes its kernel, b its module, c its shapes; d goes, e comes; relu stays.
BASE = f"""
{mm(64, "net.a")}
    > 40 volta_sgemm
{mm(65, "net.b")}
    > 30 volta_sgemm
{mm(66, "net.c", "torch.bmm")}
    > 20 volta_hgemm
{mm(67, "net.d", "torch.baddbmm")}
    > 10 splitk
{call("torch.relu", (64, 16), module="net.act")}
    > 5 elementwise
"""
OTHER = f"""
{mm(64, "net.a")}
    > 25 volta_h884
{mm(65, "net.moved")}
    > 33 volta_sgemm
{mm(99, "net.c", "torch.bmm")}
    > 60 volta_hgemm
{mm(68, "net.e", "torch.addmm")}
    > 7 volta_sgemm
{call("torch.relu", (64, 16), module="net.act")}
    > 5 elementwise
{call("torch.relu", (64, 16), module="net.act")}
    > 6 elementwise
"""
TIMES = ("base_calls", "other_calls", "base_device_ns", "other_device_ns", "delta_device_ns", "matched_by")
BOTH = "module and shapes"


def saved(path: Path) -> Path:
    """The database of a recording, which commands read sooner."""
    database = path.with_name(f"{path.stem}_dldb.sqlite")
    profiles.load(path).save(database)
    return database


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    folder = tmp_path_factory.mktemp("diff")
    return tuple(saved(write(folder / f"{name}.sqlite", text)) for name, text in (("a", BASE), ("b", OTHER)))


@pytest.fixture(scope="module")
def runs(files: tuple[Path, Path]) -> tuple[profiles.Profile, profiles.Profile]:
    return profiles.load(files[0]), profiles.load(files[1])


def table(runs: tuple[profiles.Profile, profiles.Profile], by: str = "operator") -> dict[Any, dict[str, Any]]:
    return {(row["name"], row["module"]): row for row in rows(runs[0].diff(runs[1], by))}


def test_operators_match_by_place_then_by_name(runs):
    found = {key: tuple(row[name] for name in TIMES) for key, row in table(runs).items()}
    assert found == {
        ("mm", "net.a"): (1, 1, 40, 25, -15, BOTH),
        ("mm", None): (1, 1, 30, 33, 3, "name"),  # moved to another module
        ("bmm", "net.c"): (1, 1, 20, 60, 40, "name"),  # with other shapes
        ("baddbmm", "net.d"): (1, None, 10, None, -10, None),
        ("addmm", "net.e"): (None, 1, None, 7, 7, None),
        ("relu", "net.act"): (1, 2, 5, 11, 6, BOTH),
    }
    assert list(found)[:3] == [
        ("bmm", "net.c"),
        ("mm", "net.a"),
        ("baddbmm", "net.d"),
    ]  # by what changed most
    moved = table(runs)["mm", None]
    assert moved["shapes"] == "(65, 32); (32, 16)"  # in both the same: said
    assert table(runs)["bmm", "net.c"]["shapes"] is None
    assert table(runs)["relu", "net.act"]["delta_device"] == pytest.approx(120)  # 6 of 5
    assert table(runs)["addmm", "net.e"]["delta_device"] is None


def test_kernels_match_by_place_then_by_name(runs):
    found = {
        (row["name"], row["operator"]): tuple(row[name] for name in TIMES)
        for row in rows(runs[0].diff(runs[1], "kernel"))
    }
    assert found == {
        # 40 in net.a and 30 in net.b; 33 and 7 elsewhere in the other.
        ("volta_sgemm", None): (2, 2, 70, 40, -30, "name"),
        ("volta_h884", "mm"): (None, 1, None, 25, 25, None),
        ("volta_hgemm", "bmm"): (1, 1, 20, 60, 40, "name"),
        ("splitk", "baddbmm"): (1, None, 10, None, -10, None),
        ("elementwise", "relu"): (1, 2, 5, 11, 6, BOTH),
    }


@pytest.mark.parametrize("seed", range(2))
def test_deltas_add_up_to_the_difference_of_the_totals(tmp_path, seed):
    rng = random.Random(seed)
    lines = []
    for _ in range(2):
        text = ""
        for _ in range(30):
            name, module = rng.choice(["torch.mm", "torch.bmm", "torch.relu"]), rng.choice([None, "a", "b"])
            text += f"{mm(rng.choice([8, 16]), module, name)}\n    > {rng.randint(1, 50)} {rng.choice('xyz')}\n"
        lines.append(text + "> 9 stray\n")
    runs = [profiles.load(write(tmp_path / f"{i}.sqlite", text)) for i, text in enumerate(lines)]
    for by in ("operator", "kernel"):
        check_deltas(runs, by)


def check_deltas(runs: list[profiles.Profile], by: str) -> None:
    found = rows(runs[0].diff(runs[1], by, "run"))
    for side, prof in zip(("base", "other"), runs):
        kernels = prof.kernels[prof.kernels["step"].notna()]
        assert sum(row[f"{side}_device_ns"] or 0 for row in found) == kernels["duration_ns"].sum()
        if by == "kernel":
            assert sum(row[f"{side}_calls"] or 0 for row in found) == len(kernels)
        else:
            assert sum(row[f"{side}_host_ns"] or 0 for row in found) == prof.report("detail")["cpu"].sum()
            assert sum(row[f"{side}_calls"] or 0 for row in found) == prof.report("detail")["calls"].sum()
    for row in found:
        for key in ("calls", "device_ns", "host_ns"):
            base, other = row[f"base_{key}"], row[f"other_{key}"]
            assert row[f"delta_{key}"] == (None if base is None is other else (other or 0) - (base or 0))
    places = [(row["name"], row["operator"], row["module"], row["shapes"], row["direction"]) for row in found]
    assert len(places) == len(set(places)) or by == "kernel"
    if any(flag for prof in runs for flag in partial_flags(prof)):
        return  # the means leave these iterations out
    iterations = [len(prof.steps) for prof in runs]
    for row, mean in zip(found, sorted_as(rows(runs[0].diff(runs[1], by)), found)):
        for side, count in zip(("base", "other"), iterations):
            for key in ("calls", "device_ns", "host_ns"):
                total = row[f"{side}_{key}"]
                expected = None if total is None else pytest.approx(total / count)
                assert mean[f"{side}_{key}"] == expected


def sorted_as(found: list[dict[str, Any]], order: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The rows in the order of others with the same names; both in the order of their times where names repeat."""
    keys = ("name", "operator", "module", "shapes", "direction", "matched_by")

    def key(row: dict[str, Any]) -> tuple[Any, ...]:
        sides = [(row[f"{side}_device_ns"] is None, row[f"{side}_device_ns"]) for side in ("base", "other")]
        return (*(str(row[name]) for name in keys), *sides)

    places = sorted(range(len(order)), key=lambda at: key(order[at]))
    out: list[dict[str, Any]] = [{}] * len(order)
    for at, row in zip(places, sorted(found, key=key)):
        out[at] = row
    return out


def test_a_run_differs_from_itself_in_nothing(runs):
    assert not any(row["delta_time_ns"] for row in rows(runs[0].diff(runs[0])))
    for by in ("operator", "kernel"):
        found = rows(runs[0].diff(runs[0], by))
        assert {row["matched_by"] for row in found} == {BOTH}
        assert {row[key] for row in found for key in ("delta_calls", "delta_device_ns", "delta_device")} == {0}


def test_what_cannot_be_compared_is_told(runs):
    with pytest.raises(UsageError, match="choose from step, operator, kernel"):
        runs[0].diff(runs[1], "module")


def test_the_command_prints_the_same_table(files, runs, capfd):
    assert cli.main(["diff", *map(str, files), "--by=kernel", "--format=csv"]) == 0
    out, err = capfd.readouterr()
    printed = list(csv.DictReader(io.StringIO(out)))
    assert [row["Name"] for row in printed] == [row["name"] for row in rows(runs[0].diff(runs[1], "kernel"))]
    assert err == ""


def test_the_command_says_what_it_cannot_read_and_leaves_no_file(files, tmp_path, capfd):
    out = tmp_path / "out.csv"
    assert cli.main(["diff", str(files[0]), str(tmp_path / "none.sqlite"), "--format=csv", "-o", str(out)]) == 1
    assert "none.sqlite" in capfd.readouterr().err
    assert not out.exists()
    assert cli.main(["diff", *map(str, files), "--format=nonsense"]) == 2


def stepped(path: Path, times: list[int]) -> Path:
    """A recording with a marked step for each time, in which one kernel takes so long."""
    what = recording("".join(f"{mm(64, None)}\n    > {time} volta_sgemm\n" for time in times))
    starts = [r.start for r in what.ranges]
    what.steps = [(number, start, start + 50) for number, start in enumerate(starts)]
    return write_capture(path, what)


def test_one_more_iteration_changes_nothing_per_iteration(tmp_path, capfd):
    paths = [str(saved(stepped(tmp_path / f"{count}.sqlite", [40] * count))) for count in (2, 3)]
    for by in ("operator", "kernel"):
        assert cli.main(["diff", *paths, f"--by={by}"]) == 0
        assert capfd.readouterr().err == ""
        base, other = map(profiles.load, paths)
        (row,) = rows(base.diff(other, by))
        assert [row[key] for key in ("base_calls", "other_calls", "delta_calls", "delta_device_ns")] == [
            1,
            1,
            0,
            0,
        ]
        assert (row["error_ns"], row["noise"]) == (0, True)
        (row,) = rows(base.diff(other, by, "run"))
        assert (row["base_calls"], row["other_calls"], row["share_calls"]) == (2, 3, 50)
        assert (row["base_device_ns"], row["delta_device_ns"]) == (80, 40)
    assert cli.main(["diff", *paths, "--by=operator", "--per=run"]) == 0
    assert "the base has 2 iterations, the other 3" in capfd.readouterr().err
    assert cli.main(["diff", *paths, "--by=operator", "--per=run", "--iter_stop=1"]) == 0
    assert capfd.readouterr().err == ""
    assert cli.main(["diff", *paths, "--per=run"]) == 2
    assert "--by=operator" in capfd.readouterr().err


@pytest.mark.parametrize(("after", "noise"), [([14, 16, 18], True), ([17, 19, 21], False)])
def test_a_delta_within_the_spread_of_the_iterations_is_noise(tmp_path, after, noise):
    """Both spread by a standard deviation of 2: the error of the delta of means is sqrt(4 / 3 + 4 / 3), 1.633 ns. Means
    of 13, then 16 and 19: 3 is within two errors, 3.266, and 6 is not."""
    base = profiles.load(stepped(tmp_path / "base.sqlite", [11, 13, 15]))
    other = profiles.load(stepped(tmp_path / "other.sqlite", after))
    for by in ("operator", "kernel"):
        (row,) = rows(base.diff(other, by))
        assert row["error_ns"] == pytest.approx((8 / 3) ** 0.5)
        assert row["noise"] is noise
        (row,) = rows(base.diff(other, by, "run"))
        assert row["error_ns"] == pytest.approx(24**0.5)  # of sums of three: 3 * 4 on each side
        assert row["noise"] is noise
    base.aggregate(1, 1)
    (row,) = rows(base.diff(other, "operator"))
    assert (row["error_ns"], row["noise"]) == (None, None)


def test_what_makes_a_comparison_misleading_is_said(tmp_path, files, capfd):
    text = f"op seq=1 {mm(64, 'net.a')}\n    op seq=1 aten::mm\n        wait 5\n"
    cpu = saved(write(tmp_path / "cpu.sqlite", text))
    damaged = write(tmp_path / "damaged.sqlite", OTHER)
    with closing(sqlite3.connect(damaged)) as connection, connection:
        connection.execute("create table if not exists PYPROF_LOST (reason text, count integer)")
        connection.execute("insert into PYPROF_LOST values ('operators over the limit', 3)")
    damaged = saved(damaged)
    for paths, message in (
        ((files[0], files[1]), ""),
        ((files[0], cpu), "the other has no GPU events"),
        ((cpu, files[0]), "the base has no GPU events"),
        ((files[0], damaged), "the other is incomplete: 3 operators over the limit."),
    ):
        assert cli.main(["diff", *map(str, paths), "--by=operator"]) == 0
        error = capfd.readouterr().err
        assert (message in error) if message else not error


@cache
def cut_off(cut: bool) -> profiles.Profile:
    """A recording of four iterations that end with a step, and if `cut` the beginning of another."""
    step = call("torch.step", (3,), module="net")
    one = f"{mm(64, None)}\n    > 40 volta_sgemm\n    > 7 splitKreduce\n{step}\n    > 5 adam\n"
    text = one * 4 + (f"{mm(64, None)}\n    > 90 volta_sgemm\n" if cut else "")
    prof = load(recording(text))
    prof.aggregate(key="net/step")
    return prof


@pytest.mark.parametrize("by", ["step", "operator", "kernel"])
def test_a_partial_iteration_more_changes_nothing(by: str):
    base, other = cut_off(False), cut_off(True)
    # The rest of the base has nothing in it, that of the other a product.
    assert partial_flags(base) == partial_flags(other) == [0, 0, 0, 0, 1]
    for one, another in ((base, other), (other, base), (base, base), (other, other)):
        found = rows(one.diff(another, by))
        assert found
        for row in found:
            changed = {key: row[key] for key in row if key.startswith("delta_") and row[key]}
            assert not changed, row
            assert row["noise"] in (None, True)
    if by != "step":
        (row,) = (row for row in rows(base.diff(other, by, "run")) if row["name"] in ("mm", "volta_sgemm"))
        assert (row["base_calls"], row["other_calls"], row["delta_device_ns"]) == (4, 5, 90)


def partial_flags(prof: profiles.Profile) -> list[int]:
    return [row[0] for row in prof.database.rows(
        "select partial from iteration where iteration_set = ? order by number", (prof.aggregation.iteration_set,)
    )]  # fmt: skip


def test_runs_that_are_cut_by_different_operators_are_told():
    base, other = cut_off(False), cut_off(True)
    assert cautions(base.source(), other.source()) == []
    other.aggregate(key="mm")
    assert any("ends of 'mm'" in line for line in cautions(base.source(), other.source()))
    other.aggregate(key="net/step")
