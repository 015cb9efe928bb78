# SPDX-License-Identifier: Apache-2.0
"""A fleet's summary on the terminal and in the viewer: what it can answer is that of all recordings, and the rest is
refused in one sentence."""

from __future__ import annotations

import shutil
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

import pyprof
from pyprof import fleet
from pyprof.commands.main import main
from pyprof.profiles import Profile
from pyprof.reports import every, headline
from pyprof.server.app import build
from tests.reports import simulated
from tests.server import planted_ranks
from tests.server.conftest import Asking, cache, serving  # noqa: F401

NOT_ASKED = {"/api/openapi.json", "/api/jobs", "/api/jobs/{id}", "/api/jobs/{id}/events", "/api/reports"}


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Four ranks, one of them with a slow data loader, and a file that cannot be read."""
    folder = tmp_path_factory.mktemp("showing") / "run"
    what = simulated.plan(0, "loader")._replace(ranks=4, guilty=2, offset=[0] * 4, drift=[0.0] * 4, late_start=[0] * 4)
    simulated.write(folder, simulated.files(what, 4, 0))
    first = (folder / "rank0.1700000000000.pt.trace.json").read_text()
    (folder / "rank4.1700000000000.pt.trace.json").write_text(first[:200])
    return folder


@pytest.fixture(scope="module")
def store(run: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("fleet")
    fleet.open(run, store=folder)
    return folder


@pytest.fixture(scope="module")
def whole(run: Path) -> Profile:
    return pyprof.load(run)


@pytest.fixture(scope="module")
def page(store: Path, cache: Path) -> Iterator[Asking]:  # noqa: F811
    with serving(store) as asking:
        yield asking


def test_reports_of_a_store_are_those_of_all_recordings(
    store: Path, whole: Profile, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    database = tmp_path / "run_dldb.sqlite"
    whole.save(database)
    for report in (one.name for one in every() if one.of_summary):
        texts = []
        for path in (store, database):
            assert main(["report", report, str(path), "--format", "csv"]) == 0
            texts.append(capsys.readouterr().out)
        assert texts[0] == texts[1], report


@pytest.mark.parametrize("damage", ["cut off", "no table"])
def test_a_damaged_summary_is_named(
    store: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], damage: str
) -> None:
    folder = tmp_path / "store"
    shutil.copytree(store, folder)
    file = folder / "fleet.sqlite"
    if damage == "no table":
        with closing(sqlite3.connect(file)) as database:
            database.execute("drop table worker")
            database.commit()
    else:
        file.write_bytes(file.read_bytes()[:50_000])
    assert main(["report", "stragglers", str(folder)]) == 1
    assert "fleet.sqlite is damaged" in capsys.readouterr().err
    with serving(folder) as page:
        answer = page.http.get("/api/profile")
        assert answer.status_code == 409
        assert "fleet.sqlite is damaged" in answer.json()["detail"]


def test_other_reports_are_refused_by_name(store: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for name in ("idle", "root_cause", "summary"):
        assert main(["report", name, str(store)]) == 2
        said = capsys.readouterr()
        assert (said.out, said.err.count("\n")) == ("", 1)
        assert f"report '{name}' needs the events of the ranks" in said.err
        assert "The summary has clocks, collectives, communication" in said.err
    assert main(["report", "rank_times", str(store), "--iter-start", "1"]) == 2
    assert "has the figures of all iterations alone" in capsys.readouterr().err
    for words in (
        ["query", str(store / "fleet.sqlite"), "select 1"],
        ["export", str(store / "fleet.sqlite")],
    ):
        assert main([*words, "-o", str(store / "none")]) in (1, 2)
    assert not (store / "none").exists()


def test_the_overview_names_the_late_rank_and_what_was_not_read(
    store: Path, whole: Profile, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["report", str(store)]) == 0
    said = capsys.readouterr()
    text = " ".join(said.out.split())
    sentence = headline.of_summary(whole.source())
    assert text.startswith(sentence)
    assert "on 4 workers, not known to be steady. rank2 is the straggler: last to arrive at" in sentence
    assert "Most of its own is more time in the data loader: " in sentence
    assert "Not read: " in text
    assert "rank4.1700000000000.pt.trace.json" in said.out.replace("\n  ", "")
    assert "is incomplete: 1 recordings not read" in said.err
    steps = whole.report("step_time")
    alike = steps[~steps["partial"]].groupby("step")["total_ns"].max()
    assert whole.report("rank_times")["steps"].tolist() == [len(alike)] * 4


def test_ranks_are_in_the_order_of_their_steps(whole: Profile) -> None:
    """By hand, of the report step_time."""
    means = whole.report("step_time").groupby("worker")["total_ns"].mean().sort_values(ascending=False)
    table = whole.report("rank_times")
    assert table["worker"].tolist() == means.index.tolist()
    assert table["step_avg"].tolist() == means.tolist()
    assert table["over_median_ns"].tolist() == [round(mean) for mean in means - means.median()]
    (one,) = whole.report("rank_times", worker="rank1").to_dict("records")
    assert one["over_median_ns"] == round(means["rank1"] - means.median())


def test_the_page_has_the_summary_and_its_ranks(page: Asking, store: Path, whole: Profile) -> None:
    profile = page.json("/api/profile")
    assert [run["name"] for run in profile["runs"]] == ["fleet", "rank0", "rank1", "rank2", "rank3"]
    assert [run["fleet"] for run in profile["runs"]] == [True, False, False, False, False]
    assert (profile["fleet"], profile["can_aggregate"], profile["run"]) == (True, False, "fleet")
    assert any("rank4" in one["reason"] for one in profile["lost"])
    assert page.json("/api/fleet") == {"headline": headline.of_summary(whole.source())}
    for name in ("rank_times", "stragglers", "rank_operators", "communication"):
        table = page.json(f"/api/reports/{name}", limit=100)
        keys = [column["key"] for column in table["columns"]]
        first = whole.report(name).iloc[0]
        if "worker" in keys:
            assert table["rows"][0][keys.index("worker")] == first["worker"]
        assert table["total"] == len(whole.report(name))
    rank = page.json("/api/profile", run="rank2")
    assert (rank["name"], rank["fleet"], len(rank["workers"])) == ("rank2", False, 1)
    assert page.json("/api/reports/idle", run="rank2")["total"]
    assert page.json("/api/fleet", 404, run="rank2")["detail"] == "rank2 is not the summary of a fleet."


def test_no_route_makes_figures_of_events_that_are_not_there(page: Asking) -> None:
    """Every route but the four that can answer says the same sentence."""
    answers = {"/api/profile", "/api/fleet", "/api/reports/{name}", "/api/reports/{name}/export"}
    refused = 0
    for path, methods in build(page.server).openapi()["paths"].items():
        names = {one["name"] for method in methods.values() for one in method.get("parameters", [])}
        if path in answers or not names & {"run", "base", "other"}:
            assert path in answers | NOT_ASKED or "{id}" in path, path
            continue
        for method in methods:
            query = "?base=fleet&other=rank1" if "base" in names else "?other=fleet" if "run" not in names else ""
            said = page.http.request(method.upper(), path.replace("{", "").replace("}", "") + query, json={})
            assert said.status_code == 404, (path, said.text)
            assert said.json()["detail"].startswith("The summary of a fleet has no single events"), path
            refused += 1
    assert refused > 30
    said = page.json("/api/reports/idle", 422)
    assert "report 'idle' needs the events of the ranks" in said["detail"]


def test_a_summary_that_names_files_elsewhere_is_damaged(store: Path, tmp_path: Path) -> None:
    """It may be from anyone."""
    for name in ("../../secret.sqlite", "/etc/passwd", "", ".."):
        path = tmp_path / "fleet.sqlite"
        path.write_bytes((store / "fleet.sqlite").read_bytes())
        with closing(sqlite3.connect(path)) as connection:
            connection.execute("update recording set database = ? where worker = 1", (name,))
            connection.commit()
        with serving(path) as asking:
            said = asking.json("/api/profile", 409)
            assert said["type"] == "damaged"
            assert "is no name of a database beside it" in said["detail"]


def test_a_rank_whose_database_is_gone_is_said_to_be_gone(store: Path, tmp_path: Path) -> None:
    (tmp_path / "fleet.sqlite").write_bytes((store / "fleet.sqlite").read_bytes())
    with serving(tmp_path) as asking:
        assert asking.json("/api/fleet")["headline"]
        assert asking.json("/api/overview", 410, run="rank1")["type"] == "vanished"


def test_a_database_of_that_name_is_a_profile(tmp_path: Path) -> None:
    """Only a summary is one."""
    planted_ranks.write(tmp_path / "run")
    pyprof.load(tmp_path / "run").save(tmp_path / "fleet.sqlite")
    with serving(tmp_path / "fleet.sqlite") as asking:
        profile = asking.json("/api/profile")
        assert (profile["fleet"], len(profile["runs"])) == (False, 1)
