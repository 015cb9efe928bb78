# SPDX-License-Identifier: Apache-2.0
"""Annotations on disk and over the API: what somebody wrote is there for everybody, and never replaced silently."""

from __future__ import annotations

import errno
import json
import os
import shutil
import sqlite3
import threading
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import pytest

from pyprof import profiles
from pyprof.parse import folder
from pyprof.server import demo, notes
from pyprof.store.kinds import IS_KERNEL
from tests.server.browser.conftest import read
from tests.server.conftest import Asking, serving

URL = "/api/annotations"
LINE = {"id": "a-1", "name": "slow", "text": "why?", "start": 100, "end": None, "color": 2,
        "anchor": {"event": "launch:7", "edge": "end"}, "created": "2026-01-02T03:04:05.678Z"}  # fmt: skip
STRETCH = {
    "id": "b",
    "name": "",
    "text": "",
    "start": 10,
    "end": 20,
    "color": 0,
    "anchor": None,
    "created": None,
}


@pytest.fixture(autouse=True)
def state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Files for this user alone are not the user's."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    return tmp_path / "state" / "pyprof" / "notes"


@pytest.fixture
def served(copied: Callable[[], Path]) -> Iterator[Asking]:
    with serving(copied()) as asking:
        yield asking


@pytest.fixture
def file(tmp_path: Path) -> Path:
    """The file beside the database of `served`."""
    return tmp_path / "copy_dldb.sqlite.notes.json"


def put(client: Asking, annotations: list[Any], version: str | None = None) -> Any:
    """Replace the annotations of a version, by default of the present one."""
    match = version or client.json(URL)["version"]
    return client.http.put(URL, json={"annotations": annotations}, headers={"If-Match": f'"{match}"'})


def test_what_is_written_is_there_after_a_restart(copied: Callable[[], Path], file: Path):
    """For everybody who opens the profile; the profile itself stays as it is."""
    database = copied()
    content = database.read_bytes()
    with serving(database) as first:
        empty = first.json(URL)
        assert (empty["annotations"], empty["notice"], empty["file"]) == ([], None, str(file))
        assert not file.exists()
        answer = put(first, [LINE, STRETCH])
        assert answer.status_code == 200
        assert answer.headers["etag"] == f'"{answer.json()["version"]}"'
    with serving(database) as second:
        again = second.http.get(URL)
    assert again.json() == answer.json()
    assert again.headers["etag"] == answer.headers["etag"]
    assert again.json()["annotations"] == [STRETCH, LINE]  # by their starts
    assert database.read_bytes() == content
    prof = profiles.load(database)
    events = prof.database.rows("select sum(events) from track")[0][0]
    end = prof.database.rows("select max(end_ns) from worker")[0][0]
    stored = json.loads(file.read_bytes())
    assert stored["pyprof_notes"] == 1
    assert stored["profile"] == {"name": "copy", "events": events, "end": end}


def test_a_version_that_is_no_longer_there_is_refused_with_the_newer_one(served: Asking, file: Path):
    old = served.json(URL)["version"]
    assert put(served, [LINE], old).status_code == 200
    content = file.read_bytes()
    refused = put(served, [STRETCH], old)
    assert (refused.status_code, refused.json()) == (412, served.json(URL))
    assert refused.json()["annotations"] == [LINE]
    assert file.read_bytes() == content
    assert served.http.put(URL, json={"annotations": []}).json()["type"] == "parameter"
    weak = {"If-Match": f'W/"{refused.json()["version"]}"'}
    assert served.http.put(URL, json={"annotations": []}, headers=weak).status_code == 200


def test_writers_at_the_same_time_lose_nothing(served: Asking, file: Path):
    """Each adds its own to what it read, and reads again when it was too late."""
    first, late = served.json(URL), []

    def write(number: int) -> None:
        known = first
        while True:
            own = {**LINE, "id": f"id-{number}"}
            answer = put(served, [*known["annotations"], own], known["version"])
            known = answer.json()
            if answer.status_code == 200:
                return
            late.append(number)

    threads = [threading.Thread(target=write, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert {one["id"] for one in served.json(URL)["annotations"]} == {f"id-{number}" for number in range(8)}
    assert len(set(late)) == 7  # all but the first
    assert [path.name for path in file.parent.glob("*notes*")] == [file.name]


def test_a_file_that_another_program_writes(served: Asking, file: Path, monkeypatch: pytest.MonkeyPatch):
    theirs = json.dumps({"pyprof_notes": 1, "annotations": [{"id": "x", "start": 5}]}).encode()
    old = served.json(URL)["version"]
    file.write_bytes(theirs)
    assert put(served, [LINE], old).status_code == 412
    (one,) = served.json(URL)["annotations"]
    assert (one["id"], one["start"], one["end"], one["name"]) == ("x", 5, None, "")
    # In the moment between the look at the version and the write.
    later = theirs.replace(b'"x"', b'"y"')
    named = notes.atomic_file.named

    @contextmanager
    def late(path: str) -> Iterator[str]:
        with named(path) as name:
            file.write_bytes(later)
            yield name

    monkeypatch.setattr(notes.atomic_file, "named", late)
    refused = put(served, [LINE])
    assert refused.status_code == 412
    assert [one["id"] for one in refused.json()["annotations"]] == ["y"]
    assert file.read_bytes() == later


def link(path: Path) -> None:
    (path.parent / "target.json").write_text('{"pyprof_notes": 1, "annotations": []}', encoding="utf-8")
    path.symlink_to(path.parent / "target.json")


DAMAGED = {
    "cut": (b'{"pyprof_notes": 1, "annotations": [', "not JSON"),
    "bytes": (b"\xff\xfe\x00\xd8", "not JSON"),
    "deep": (b"[" * 100_000, "not JSON"),
    "foreign": (b'{"annotations": []}', "no annotations of PyProf"),
    "list": (b"[1, 2]", "no annotations of PyProf"),
    "none": (b'{"pyprof_notes": 1}', "no list"),
    "numbers": (b'{"pyprof_notes": 1, "annotations": [1]}', "no list"),
    "color": (b'{"pyprof_notes": 1, "annotations": [{"id": "a", "start": 1, "color": 8}]}', "annotations.0.color"),
    "id": (b'{"pyprof_notes": 1, "annotations": [{"id": "<b>", "start": 1}]}', "annotations.0.id"),
    "order": (b'{"pyprof_notes": 1, "annotations": [{"id": "a", "start": 2, "end": 1}]}', "end is before"),
    "twice": (b'{"pyprof_notes": 1, "annotations": [{"id": "a", "start": 1}, {"id": "a", "start": 2}]}', "same id"),
    "surrogate": (b'{"pyprof_notes": 1, "annotations": [{"id": "a", "start": 1, "name": "\\ud800"}]}', "name"),
    "large": (b" " * (4 << 20) + b"{}", "larger than 4 MiB"),
}  # fmt: skip


@pytest.mark.parametrize("name", DAMAGED)
def test_a_damaged_file_is_a_sentence_and_is_kept(served: Asking, file: Path, name: str):
    content, reason = DAMAGED[name]
    file.write_bytes(content)
    answer = served.json(URL)
    assert answer["annotations"] == []
    assert str(file) in answer["notice"]
    assert reason in answer["notice"]
    assert file.read_bytes() == content  # reading changes nothing
    aside = file.with_name(f"{file.name}.damaged")
    assert aside.name in answer["notice"]
    aside.write_bytes(b"of last week")
    written = put(served, [LINE]).json()
    assert (written["annotations"], written["notice"]) == ([LINE], None)
    assert aside.read_bytes() == b"of last week"
    assert file.with_name(f"{file.name}.damaged-2").read_bytes() == content


@pytest.mark.parametrize(
    ("make", "reason"),
    [(link, "a link"), (Path.mkdir, "not a regular file"), (os.mkfifo, "not a regular file")],
)
def test_what_is_no_file_is_not_followed(served: Asking, file: Path, make: Callable[[Path], None], reason: str):
    make(file)
    assert reason in served.json(URL)["notice"]
    assert put(served, [LINE]).json()["annotations"] == [LINE]
    assert file.is_file()
    assert not file.is_symlink()
    target = file.with_name("target.json")
    assert not target.exists() or json.loads(target.read_bytes())["annotations"] == []


def test_a_file_of_a_newer_version_stays_as_it_is(served: Asking, file: Path, state: Path):
    content = b'{"pyprof_notes": 2, "annotations": {}}'
    file.write_bytes(content)
    assert "newer version" in served.json(URL)["notice"]
    assert put(served, [LINE]).json()["annotations"] == [LINE]
    assert file.read_bytes() == content
    assert [one["id"] for path in state.iterdir() for one in json.loads(path.read_bytes())["annotations"]] == ["a-1"]


def test_fields_that_are_unknown_here_stay_in_the_file(served: Asking, file: Path):
    old = {
        "pyprof_notes": 1,
        "later": {"x": "\ud800"},
        "annotations": [{"id": "a", "start": 1, "tags": ["é"]}],
    }
    file.write_text(json.dumps(old), encoding="ascii")
    (one,) = served.json(URL)["annotations"]
    assert put(served, [{**one, "name": "new"}, LINE]).status_code == 200
    new = json.loads(file.read_bytes())
    assert new["later"] == old["later"]
    assert [one.get("tags") for one in new["annotations"]] == [["é"], None]
    assert new["annotations"][0]["name"] == "new"


def test_a_folder_that_cannot_be_written(served: Asking, file: Path, state: Path, monkeypatch: pytest.MonkeyPatch):
    """Annotations are this user's then, and move to the folder when it can be written."""
    theirs = {"pyprof_notes": 1, "annotations": [{"id": "x", "start": 5}]}
    file.write_text(json.dumps(theirs), encoding="utf-8")
    content = file.read_bytes()
    access = os.access
    with monkeypatch.context() as patch:
        patch.setattr(os, "access", lambda path, mode: Path(path) != file.parent and access(path, mode))
        answer = served.json(URL)
        assert [one["id"] for one in answer["annotations"]] == ["x"]
        assert "for you alone" in answer["notice"]
        assert not state.exists()
        written = put(served, [*answer["annotations"], LINE]).json()
        (own,) = state.iterdir()
        assert written["file"] == str(own)
        assert [one["id"] for one in written["annotations"]] == ["x", "a-1"]
        assert served.json(URL) == written
        assert file.read_bytes() == content
    answer = served.json(URL)
    assert (answer["file"], [one["id"] for one in answer["annotations"]]) == (str(file), ["x", "a-1"])
    assert put(served, answer["annotations"]).status_code == 200
    assert not own.exists()
    assert [one["id"] for one in json.loads(file.read_bytes())["annotations"]] == ["x", "a-1"]


def test_a_disk_that_refuses(served: Asking, file: Path, monkeypatch: pytest.MonkeyPatch):
    """Whether the folder is read-only, which is known by trying alone, or full."""
    put(served, [STRETCH])
    content = file.read_bytes()

    def refuse(number: int) -> Callable[[str], Any]:
        @contextmanager
        def named(path: str) -> Iterator[str]:
            if Path(path) == file:
                raise OSError(number, os.strerror(number))
            with real(path) as name:
                yield name

        return named

    real = notes.atomic_file.named
    monkeypatch.setattr(notes.atomic_file, "named", refuse(errno.ENOSPC))
    refused = put(served, [STRETCH, LINE])
    assert refused.status_code == 403
    assert "No space left" in refused.json()["detail"]
    monkeypatch.setattr(notes.atomic_file, "named", refuse(errno.EROFS))
    assert put(served, [STRETCH, LINE]).json()["annotations"] == [STRETCH, LINE]
    assert file.read_bytes() == content


def test_nothing_is_written_into_the_package(made: Path):
    profile = notes.AnnotatedProfile(name="demo", events=1, end=1)
    file = notes.Notes(demo.RECORDING, "demo").read(profile).file
    assert demo.RECORDING.parent not in Path(file).parents


def test_names_are_texts(served: Asking):
    names = [
        "<img src=x onerror=alert(1)>",
        "\u202eabc",
        "\u0000",
        "é" * 200,
        "'; drop table event; --",
        "\n\t",
    ]
    entries = [{**LINE, "id": f"n{at}", "name": name} for at, name in enumerate(names)]
    assert put(served, entries).status_code == 200
    assert [one["name"] for one in served.json(URL)["annotations"]] == names


@pytest.mark.parametrize(
    "entry",
    [
        {"id": "a"},
        {"start": 1},
        {**LINE, "id": "../x"},
        {**LINE, "id": "a" * 65},
        {**LINE, "name": "x" * 201},
        {**LINE, "text": "x" * 4001},
        {**LINE, "start": 2**60},
        {**LINE, "end": 99},
        {**LINE, "color": 8},
        {**LINE, "anchor": {"event": "op:1", "edge": "start"}},
        {**LINE, "more": 1},
        "text",
    ],
)
def test_what_is_no_annotation_is_refused(served: Asking, file: Path, entry: Any):
    refused = put(served, [STRETCH, entry])
    assert (refused.status_code, refused.json()["type"]) == (422, "parameter")
    assert not file.exists()


def test_limits(served: Asking, file: Path):
    """Of number and size: as many as are allowed are more than other routes take."""
    many = [{**LINE, "id": f"n{at}", "text": "x" * 200} for at in range(2000)]
    assert put(served, many).status_code == 200
    assert file.stat().st_size > 65_536
    assert put(served, [*many, STRETCH]).status_code == 422
    assert put(served, [{**one, "text": "x" * 2000} for one in many]).json()["type"] == "parameter"
    assert put(served, [LINE, LINE]).status_code == 422
    assert len(served.json(URL)["annotations"]) == 2000


def test_only_the_page_may_write(served: Asking, file: Path):
    version = served.json(URL)["version"]
    for headers in ({"X-PyProf": ""}, {"Origin": "https://example.com"}):
        refused = served.http.put(URL, json={"annotations": []}, headers={"If-Match": version, **headers})
        assert (refused.status_code, refused.json()["type"]) == (403, "forbidden")
    assert not file.exists()


def test_annotations_of_another_recording_of_the_name(served: Asking, file: Path):
    put(served, [LINE])
    other = json.loads(file.read_bytes())
    other["profile"]["events"] += 1
    file.write_text(json.dumps(other), encoding="utf-8")
    answer = served.json(URL)
    assert "another recording" in answer["notice"]
    assert answer["annotations"] == [LINE]


def test_a_folder_has_its_annotations_inside(made: Path, tmp_path: Path):
    runs = tmp_path / "runs"
    shutil.copytree(made.parent, runs, ignore=shutil.ignore_patterns("*_dldb*", "*.notes.json"))
    before = folder.inputs(runs)
    with serving(runs) as asking:
        read(asking)
        answer = put(asking, [LINE]).json()
        assert answer["file"] == str(runs / "runs.notes.json")
        assert asking.json(URL)["annotations"] == [LINE]
        assert asking.json("/api/profile")["version"]
    assert folder.inputs(runs) == before


def test_the_work_of_a_stretch(copied: Callable[[], Path]):
    """Of kernels at its edges as much as is inside; unknown is counted."""
    database = copied()
    with closing(sqlite3.connect(database)) as connection, connection:
        connection.execute("update event set flops = null where id % 3 = 0")
        connection.execute("update event set bytes = null")
        connection.execute("update event set hardware_ps = 500 * duration_ns where id % 2 = 0")
    prof = profiles.load(database)
    low, high = prof.database.rows("select start_ns, end_ns from worker")[0]
    rows = prof.database.rows(
        f"select start_ns, duration_ns, flops, bytes, hardware_ps from event where {IS_KERNEL} and duration_ns > 0"
    )
    middle = rows[len(rows) // 2][0] + rows[len(rows) // 2][1] // 3  # within a kernel
    parts = []
    with serving(database) as client:
        for start, end in ((low, high + 1), (low, middle), (middle, high + 1)):
            (device,) = client.json("/api/timeline/selection", start=start, end=end, work=True)["devices"]
            work = device["work"]
            inside = [
                (min(begin + length, end) - max(begin, start), length, *values)
                for begin, length, *values in rows
                if begin < end and begin + length > start
            ]
            assert work["kernels"] == len(inside)
            for at, key, per in ((2, "flops", 1), (3, "bytes", 1), (4, "hfu", 10 * device["length"])):
                known = [one[at] * one[0] / one[1] / per for one in inside if one[at] is not None]
                assert work[f"{key}_unknown"] == len(inside) - len(known)
                assert work[key] == (pytest.approx(sum(known)) if known else None), key
            parts.append(work)
        (device,) = client.json("/api/timeline/selection", start=low, end=high)["devices"]
        assert device["work"] is None
    whole, first, second = parts
    assert 0 < whole["flops_unknown"] < whole["kernels"]
    assert whole["flops"] == pytest.approx(first["flops"] + second["flops"])
    assert 0 < whole["hfu"] <= 50


def test_each_run_of_a_folder_has_its_own(made: Path, tmp_path: Path):
    runs = tmp_path / "runs"
    runs.mkdir()
    for name in ("one_dldb.sqlite", "two_dldb.sqlite"):
        shutil.copy(made, runs / name)
    with serving(runs) as asking:
        version = asking.json(URL, run="one_dldb.sqlite")["version"]
        body, headers = {"annotations": [LINE]}, {"If-Match": f'"{version}"'}
        answer = asking.http.put(URL, params={"run": "one_dldb.sqlite"}, json=body, headers=headers).json()
        assert answer["file"] == str(runs / "one_dldb.sqlite.notes.json")
        assert asking.json(URL, run="two_dldb.sqlite")["annotations"] == []
        assert [one["name"] for one in asking.json("/api/profile")["runs"]] == [
            "one_dldb.sqlite",
            "two_dldb.sqlite",
        ]
        asking.json(URL, 404, run="three")
