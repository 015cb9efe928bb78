# SPDX-License-Identifier: Apache-2.0
"""What is served: files of every kind, folders of runs, and files that change or go while they are served."""

from __future__ import annotations

import gzip
import json
import os
import shutil
import sqlite3
import time
from contextlib import closing
from pathlib import Path

import pytest

from pyprof import profiles
from pyprof.core.errors import DamagedError
from pyprof.server import cache, library, sources
from pyprof.views.problems import Trouble
from tests import kineto
from tests.build import write_capture
from tests.server.conftest import STEPS, serving, steps
from tests.server.test_reports import cells
from tests.server.test_views import wait_until_open
from tests.waiting import until

DATABASES = Path(__file__).resolve().parents[1] / "traces" / "databases"


def write_unrelated(folder: Path) -> None:
    """Write traces of two ranks of a run, and one of rank 0 of another."""
    for name, rank in (("a.rank0", 0), ("a.rank1", 1), ("b.rank0", 0)):
        group = {"backend": "nccl", "rank": rank, "world_size": 2}
        start = 1_700_000_000_000_000_000
        events = [kineto.op("aten::mm", start, start + 5000)]
        text = json.dumps(kineto.document(events, distributedInfo=group))
        (folder / f"{name}.json").write_text(text, encoding="utf-8")


def test_a_recording_is_imported_once(tmp_path):
    path = write_capture(tmp_path / "net.sqlite", steps(3))
    with serving(path) as client:
        found = client.http.get("/api/profile")
        assert (found.status_code, found.json()["type"]) == (503, "opening")
        assert found.headers["retry-after"] == "1"
        wait_until_open(client)
        assert client.json("/api/profile")["aggregations"][0]["total"] == 3
        assert client.json("/api/reports/detail")["rows"] == cells(profiles.load(path).report("detail"))
        assert client.done(client.job(start=1, stop=1))["state"] == "done"
    with serving(path) as again:  # at once, with what was aggregated
        assert len(again.json("/api/profile")["aggregations"]) == 2
    assert [one.name for one in tmp_path.iterdir()] == ["net.sqlite"]


@pytest.mark.parametrize("damage", ["a column less", "another content"])
def test_a_damaged_database_of_the_cache_is_made_again(tmp_path, damage):
    path = write_capture(tmp_path / "net.sqlite", steps(3))
    cached = cache.database(cache.Stamp.of((path, None)))
    with serving(path) as client:
        wait_until_open(client)
    if damage == "a column less":
        with closing(sqlite3.connect(cached)) as file:
            file.execute("alter table iteration drop column host_end_ns")
            file.commit()
    else:
        cached.write_text("no database")
    with serving(path) as client:
        assert client.http.get("/api/profile").json()["type"] == "opening"
        wait_until_open(client)
        assert client.json("/api/profile")["aggregations"][0]["total"] == 3


def test_an_import_whose_database_is_useless_is_not_repeated(tmp_path, monkeypatch):
    """What an import writes can be damaged each time: the sentence says so, and nothing is read for ever."""
    path = write_capture(tmp_path / "net.sqlite", steps(3))
    with serving(path) as client:
        wait_until_open(client)
    monkeypatch.setattr(library, "Guarded", failing_to_open)
    with serving(path) as client:
        assert client.http.get("/api/profile").json()["type"] == "opening"
        until(lambda: client.http.get("/api/profile").json()["type"] != "opening")
        problem = client.http.get("/api/profile").json()
        assert (problem["type"], problem["title"]) == ("damaged", "The database is damaged")
        assert problem["detail"].endswith("is damaged.")


def failing_to_open(path: Path) -> None:
    raise DamagedError(f"{path} is damaged.")


def test_a_file_that_is_replaced_is_read_anew(copied, tmp_path):
    path = copied()
    with serving(path) as client:
        first = client.json("/api/profile")
        profiles.load(write_capture(tmp_path / "other.sqlite", steps(2))).save(tmp_path / "new.sqlite")
        os.replace(tmp_path / "new.sqlite", path)
        second = client.json("/api/profile")
        assert (first["aggregations"][0]["total"], second["aggregations"][0]["total"]) == (STEPS, 2)
        assert first["version"] != second["version"]
        assert client.json("/api/iterations")["total"] == 2


def test_a_file_that_is_deleted_is_said_to_be_gone(copied):
    path = copied()
    with serving(path) as client:
        client.json("/api/overview")
        data = path.read_bytes()
        path.unlink()
        for route in ("profile", "overview", "reports/detail", "launches", "iterations"):
            found = client.json(f"/api/{route}", 410)
            assert found["type"] == "vanished"
            assert str(path) in found["detail"]
        assert client.http.post("/api/aggregations", json={"start": 1}).status_code == 410
        path.write_bytes(data)  # and back again
        assert client.json("/api/iterations")["total"] == STEPS


def version(path, major, minor):
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute("update meta set value = ? where name = 'schema_major'", (str(major),))
        connection.execute("update meta set value = ? where name = 'schema_minor'", (str(minor),))
    connection.close()


@pytest.mark.parametrize(
    ("major", "minor", "type_"), [(0, 9, "older"), (1, 5, "older"), (2, 5, "newer"), (3, 0, "newer")]
)
def test_other_schemas(copied, major, minor, type_):
    path = copied()
    version(path, major, minor)
    with serving(path) as client:
        found = client.json("/api/profile", 409)
        assert found["type"] == type_
        assert f"{major}.{minor}" in found["detail"]
        assert "2.4" in found["detail"]


def test_a_database_of_an_older_schema_is_converted_into_the_cache(tmp_path):
    path = tmp_path / "old_dldb.sqlite"
    path.write_bytes(gzip.decompress((DATABASES / "schema_1.0.sqlite.gz").read_bytes()))
    before = path.read_bytes()
    with serving(path) as client:
        wait_until_open(client)
        assert client.json("/api/profile")["aggregations"][0]["total"] == 4
        assert client.json("/api/reports/op_type")["rows"] == cells(profiles.load(path).report("op_type"))
    assert path.read_bytes() == before


def test_files_that_are_no_profile(tmp_path, copied):
    (tmp_path / "empty.sqlite").write_bytes(b"")
    with closing(sqlite3.connect(tmp_path / "foreign.sqlite")) as connection, connection:
        connection.execute("create table users (name text)")
    connection.close()
    (tmp_path / "text.txt").write_text("hello")
    cut = copied("cut_dldb.sqlite")
    cut.write_bytes(cut.read_bytes()[:20000])
    wanted = {
        "empty.sqlite": "foreign",
        "foreign.sqlite": "foreign",
        "text.txt": "unreadable",
        "cut_dldb.sqlite": "damaged",
    }
    for name, type_ in wanted.items():
        with serving(tmp_path / name) as client:
            until(lambda: client.http.get("/api/profile").status_code != 503)
            found = client.http.get("/api/profile")
            assert (found.status_code, found.json()["type"]) == (409, type_), name
            assert name in found.json()["detail"]
            assert found.json()["recording"] == name.partition(".")[0].removesuffix("_dldb")
            assert "Traceback" not in found.text


@pytest.mark.long
def test_a_folder_of_runs(tmp_path, made):
    folder = tmp_path / "runs"
    for name, count in (("a", 2), ("b", 3)):
        (folder / name).mkdir(parents=True)
        write_capture(folder / name / "net.sqlite", steps(count))
    with serving(folder) as client:
        assert client.json("/api/profile", 503, run="a")["type"] == "opening"
        names = []
        for name, count in (("a", 2), ("b", 3)):
            until(lambda: client.http.get("/api/profile", params={"run": name}).status_code == 200)  # noqa: B023
            names.append(client.json("/api/profile", run=name)["name"])
            assert client.json("/api/iterations", run=name)["total"] == count
        assert names == ["a", "b"]
        states = {run["name"]: run["state"] for run in client.json("/api/profile", run="a")["runs"]}
        assert states == {"a": "ready", "b": "ready"}
        # A run and a database that appear while it serves.
        (folder / "c").mkdir()
        write_capture(folder / "c" / "net.sqlite", steps(4))
        shutil.copy(made, folder / "made_dldb.sqlite")
        client.server.library._looked = float("-inf")
        states = {run["name"]: run["state"] for run in client.json("/api/profile", run="a")["runs"]}
        assert states == {"a": "ready", "b": "ready", "c": "new", "made_dldb.sqlite": "new"}
        assert client.json("/api/iterations", run="made_dldb.sqlite")["total"] == STEPS
        base, other = (profiles.load(folder / name) for name in "ab")
        compared = client.json("/api/compare", base="a", other="b", per="run")
        assert "2 iterations" in compared["notes"][0]
        assert compared["table"]["rows"] == cells(base.diff(other, "operator", "run"))
        compared = client.json("/api/compare", base="a", other="b")
        assert not compared["notes"]
        assert compared["table"]["rows"] == cells(base.diff(other, "operator"))
        keys = ("section", "name", "base_time_ns", "other_time_ns", "delta_time_ns", "share", "noise")
        changes = [row for row in base.diff(other)[list(keys)].to_dict("records") if row["section"] in ("step", "part")]
        named = ("section", "name", "base", "other", "delta", "share", "noise")
        assert [[one[key] for key in named] for one in compared["steps"] if one["unit"] == "ns"] == [
            [None if row[key] is None else row[key] for key in keys] for row in changes
        ]
        figures = {one["key"]: one for one in compared["figures"]}
        assert (
            figures["iterations"]["base"],
            figures["iterations"]["other"],
            figures["iterations"]["delta"],
        ) == (2, 3, 1)
        assert client.json("/api/profile", 404, run="d")["parameter"] == "run"


def test_a_folder_of_files_that_cannot_be_one_run(tmp_path):
    """Two ranks of a run, and rank 0 of another: two runs, the first of two workers."""
    write_unrelated(tmp_path)
    reason = "3 files are 2 runs: rank 0 is in 2 of them."
    both, other = "a.rank0.json and 1 more", "b.rank0.json"
    with serving(tmp_path) as client:
        for run, workers in ((both, ["rank0", "rank1"]), (other, ["rank0"])):
            until(lambda: client.http.get("/api/profile", params={"run": run}).status_code == 200)  # noqa: B023
            found = client.json("/api/profile", run=run)
            assert [worker["name"] for worker in found["workers"]] == workers
            assert (found["run"], found["runs_reason"]) == (run, reason)
            assert [one["name"] for one in found["runs"]] == [both, other]
        assert [client.json("/api/profile", run=run)["name"] for run in (both, other)] == [both, "b.rank0"]
        (tmp_path / "b.rank0.json").unlink()
        client.server.library._looked = float("-inf")
        wait_until_open(client)
        found = client.json("/api/profile")
        assert (found["runs_reason"], len(found["workers"])) == (None, 2)


def test_an_empty_folder(tmp_path):
    with serving(tmp_path) as client:
        assert client.json("/api/profile", 404)["type"] == "empty"
    with serving(tmp_path / "nothing") as client:
        assert client.json("/api/profile", 410)["type"] == "vanished"


def test_two_servers_of_one_database(copied):
    path = copied()
    with serving(path) as one, serving(path) as two:
        assert one.json("/api/iterations") == two.json("/api/iterations")
        assert one.done(one.job(start=0, stop=1))["state"] == "done"
        assert two.done(two.job(start=2, stop=3))["state"] == "done"
        for asking in (one, two):
            assert asking.json("/api/iterations")["total"] == STEPS
        ranges = [(found["first"], found["last"]) for found in two.json("/api/profile")["aggregations"]]
        assert ranges == [(0, STEPS - 1), (0, 1), (2, 3)]


def test_what_nobody_opened_for_long_is_removed(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    folder = cache.cache_folder()
    old, new, used = (folder / f"{name}.sqlite" for name in ("old", "new", "used"))
    for one in (old, new, used):
        one.write_bytes(b"")
    month = time.time() - 31 * 86400
    for one in (old, used):
        os.utime(one, (month, month))
    cache.touch(used)
    cache.prune()
    assert sorted(one.name for one in folder.iterdir()) == ["new.sqlite", "used.sqlite", "used.used"]


def test_source_text(tmp_path):
    root = tmp_path / "src"
    (root / "pkg").mkdir(parents=True)
    (root / "net.py").write_text("one\ntwo\nthree\n")
    (tmp_path / "secret.py").write_text("secret")
    (root / "other.py").write_text("no stack names it")
    (root / "link.py").symlink_to(tmp_path / "secret.py")
    path = tmp_path / "db_dldb.sqlite"
    what = steps(2)
    profiles.load(write_capture(tmp_path / "net.sqlite", what)).save(path)
    with serving(path, source_root=str(root)) as client:
        found = client.json("/api/source", file="net.py", line=2)
        assert (found["lines"], found["first"], found["origin"]) == (["one", "two", "three"], 1, "disk")
        for name in (
            "other.py",
            "link.py",
            "../secret.py",
            str(tmp_path / "secret.py"),
            "/etc/passwd",
            "pkg",
        ):
            assert client.json("/api/source", 404, file=name, line=1)["type"] == "missing"  # no stack names them
        assert client.json("/api/source", 404, file="run.py", line=1)["type"] == "missing"  # named, not there
        op = client.table("/api/reports/detail")[0]
        stack = client.json(f"/api/details/op/{op['op_id']}")["stack"]
        assert {frame["file"]: frame["readable"] for frame in stack} == {"net.py": True, "run.py": False}
    with serving(path) as client:
        assert "--source-root" in client.json("/api/source", 404, file="net.py", line=1)["detail"]


def test_source_text_of_the_recording(tmp_path):
    """It is in the database, too: the recording may be gone."""
    recording = write_capture(tmp_path / "net.sqlite", steps(2))
    text = "".join(f"line {number}\n" for number in range(1, 501))
    with closing(sqlite3.connect(recording)) as connection, connection:
        connection.executescript(
            "create table PYPROF_SOURCE (path text, sha256 text);"
            "create table PYPROF_SOURCE_TEXT (sha256 text, text text);"
        )
        connection.executemany(
            "insert into PYPROF_SOURCE values (?, ?)", [("net.py", "a"), ("run.py", "b"), ("lost.py", "c")]
        )
        connection.executemany(
            "insert into PYPROF_SOURCE_TEXT values (?, ?)", [("a", text), ("b", "x" * (2 << 20) + "x")]
        )
    path = tmp_path / "db_dldb.sqlite"
    profiles.load(recording).save(path)
    recording.unlink()
    with serving(path) as client:
        found = client.json("/api/source", file="net.py", line=300)
        assert (found["origin"], found["first"], found["total"]) == ("recording", 100, 500)
        assert (found["lines"][0], found["lines"][-1]) == ("line 100", "line 500")
        assert client.json("/api/source", 404, file="run.py", line=1)["type"] == "missing"
        op = client.table("/api/reports/detail")[0]
        stack = client.json(f"/api/details/op/{op['op_id']}")["stack"]
        assert {frame["file"]: frame["readable"] for frame in stack} == {"net.py": True, "run.py": False}
    with closing(sqlite3.connect(path)) as connection, connection:
        assert connection.execute("select count from lost where reason like 'source files%'").fetchall() == [(2,)]


@pytest.fixture
def sources_root(tmp_path):
    """A folder with a file, and secrets in it, beside it and behind links."""
    root = tmp_path / "src"
    (root / "pkg" / "sub").mkdir(parents=True)
    (root / "pkg" / "net.py").write_text("naïve = 1\n", encoding="utf-8")
    (root / "id_rsa").write_text("secret")
    (tmp_path / "secret.py").write_text("secret")
    (root / "link.py").symlink_to(tmp_path / "secret.py")
    (root / "linked").symlink_to(tmp_path)
    (root / "inside.py").symlink_to(root / "pkg" / "net.py")
    (root / "loop.py").symlink_to(root / "loop.py")
    (root / "null.py").write_bytes(b"x = 1\0")
    (root / "latin.py").write_bytes("x = 'é'".encode("latin-1"))
    (root / "large.py").write_bytes(b"#" * (sources.LARGEST + 1))
    os.mkfifo(root / "pipe.py")
    return root


@pytest.mark.parametrize("name", ["pkg/net.py", "./pkg/net.py", "pkg/sub/../net.py", "pkg\\net.py", "inside.py"])
def test_a_file_is_found_by_its_whole_name(sources_root, name):
    assert sources.below(str(sources_root), name) == "naïve = 1\n"
    assert sources.below(f"{sources_root}/", str(sources_root / name.replace("\\", "/"))) == "naïve = 1\n"


@pytest.mark.parametrize(
    "name",
    [
        "net.py", "/net.py", "/pkg/net.py", "/home/user/src/pkg/net.py", "src/pkg/net.py",  # an end of it alone
        "/home/user/id_rsa", "/root/.ssh/id_rsa", "~/id_rsa", "ID_RSA/",
        "../secret.py", "pkg/../../secret.py", "/etc/passwd", "link.py", "linked/secret.py", "linked/src/pkg/net.py/x",
        "loop.py", "pkg", "", ".", "..", "pipe.py", "/dev/zero", "/proc/self/environ", "a\0b", "x" * 5000,
        "null.py", "latin.py", "large.py",
    ],
)  # fmt: skip
def test_what_is_not_shown_of_the_source_root(sources_root, name):
    with pytest.raises(Trouble) as caught:
        sources.below(str(sources_root), name)
    assert caught.value.type == "missing"


def test_a_hostile_profile_gets_nothing_but_what_it_names(sources_root, tmp_path):
    """A profile whose stacks name a key by its end: without the rule the folder's own would be shown."""
    path = tmp_path / "db_dldb.sqlite"
    profiles.load(write_capture(tmp_path / "net.sqlite", steps(2))).save(path)
    with closing(sqlite3.connect(path)) as connection, connection:
        frames = "/home/user/id_rsa:1\n../secret.py:1\nlink.py:1\npkg/net.py:1"
        connection.execute("update stack set frames = ?", (frames,))
    with serving(path, source_root=str(sources_root)) as client:
        for name in ("/home/user/id_rsa", "../secret.py", "link.py"):
            assert "not below" in client.json("/api/source", 404, file=name, line=1)["detail"]
        assert client.json("/api/source", file="pkg/net.py", line=1)["lines"] == ["naïve = 1"]
        assert client.json("/api/source", 404, file="id_rsa", line=1)["detail"].startswith("No call stack")
        op = client.table("/api/reports/detail")[0]
        stack = client.json(f"/api/details/op/{op['op_id']}")["stack"]
        assert [frame["file"] for frame in stack if frame["readable"]] == ["pkg/net.py"]
