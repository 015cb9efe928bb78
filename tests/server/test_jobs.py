# SPDX-License-Identifier: Apache-2.0
"""Re-aggregation: in a process of its own, never in the input, one after the other, whole or not at all."""

from __future__ import annotations

import hashlib
import os
import signal
import threading
from pathlib import Path

import pytest

from pyprof import profiles
from pyprof.server import cache
from tests.server.conftest import STEPS, serving
from tests.server.test_reports import cells
from tests.waiting import until


def digest(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


@pytest.fixture
def asking(copied):
    with serving(copied()) as asking:
        yield asking


def test_other_iterations(asking, tmp_path):
    path = asking.server.library.path
    before = digest(path)
    version = asking.json("/api/profile")["version"]
    job = asking.job(start=2, stop=4)
    assert (job["state"], job["start"], job["stop"], job["run"]) == ("waiting", 2, 4, "")
    last = asking.done(job)
    assert (last["state"], last["progress"], last["error"]) == ("done", 1.0, None)
    found = asking.json("/api/profile")
    assert found["version"] != version
    assert [(one["first"], one["last"]) for one in found["aggregations"]] == [(0, STEPS - 1), (2, 4)]
    assert last["aggregation"] == found["aggregations"][1]["id"]
    assert digest(path) == before
    prof = profiles.load(path)  # the same in Python: in memory, for the file is as it was
    prof = profiles.load(_writable(path, tmp_path))
    prof.aggregate(2, 4)
    shown = asking.json("/api/reports/detail", aggregation=last["aggregation"])
    assert shown["rows"] == cells(prof.report("detail"))
    kernels = sum(70 + 30 + i + 12 + 8 + i for i in (2, 3, 4))
    overview = asking.json("/api/overview", aggregation=last["aggregation"])
    assert sum(p["value"] for p in overview["kernel_time"]["parts"] if p["key"] != "memory") == kernels


def _writable(path: Path, folder: Path) -> Path:
    copy = folder / "mine_dldb.sqlite"
    copy.write_bytes(path.read_bytes())
    return copy


def test_a_key_operator_chosen_from_the_list(asking):
    one = asking.json("/api/key_operators", search="relu")["rows"][0]
    last = asking.done(asking.job(key=one["op_id"]))
    assert last["state"] == "done"
    found = asking.json("/api/profile")["aggregations"][1]
    assert (found["key"], found["method"]) == (one["op_id"], "key")
    assert found["total"] == STEPS + 1  # what is left after the last relu
    assert asking.json("/api/iterations", aggregation=found["id"])["total"] == STEPS + 1
    assert asking.json("/api/iterations")["total"] == STEPS


def test_what_was_aggregated_is_there_after_a_restart(copied):
    path = copied()
    with serving(path) as first:
        first.done(first.job(start=1, stop=1))
    with serving(path) as second:
        assert len(second.json("/api/profile")["aggregations"]) == 2
    path.write_bytes(path.read_bytes())  # another file as far as anybody can tell
    os.utime(path, ns=(1, 1))
    with serving(path) as third:
        assert len(third.json("/api/profile")["aggregations"]) == 1


@pytest.mark.parametrize(
    ("wanted", "says"),
    [
        ({"start": 99}, "iteration 99 does not exist"),
        ({"start": 3, "stop": 2}, "is after the last"),
        ({"key": "no_such"}, "was not found"),
    ],
)
def test_what_does_not_exist_fails_with_a_sentence(asking, wanted, says):
    last = asking.done(asking.job(**wanted))
    assert last["state"] == "failed"
    assert says in last["error"]
    assert len(asking.json("/api/profile")["aggregations"]) == 1


@pytest.mark.parametrize("body", [{"start": -1}, {"start": "x"}, {"key": ""}, {"key": "x" * 4097}, {"more": 1}, []])
def test_a_wrong_body(asking, body):
    found = asking.http.post("/api/aggregations", json=body)
    assert found.status_code == 422
    assert found.json()["type"] == "parameter"


def test_two_at_once_wait_for_each_other(asking):
    jobs = [asking.job(start=1, stop=2), asking.job(start=3, stop=4)]
    done = [asking.done(job) for job in jobs]
    assert [one["state"] for one in done] == ["done", "done"]
    found = asking.json("/api/profile")["aggregations"]
    assert [(one["first"], one["last"]) for one in found] == [(0, STEPS - 1), (1, 2), (3, 4)]
    assert [one["id"] for one in asking.json("/api/jobs")] == [jobs[1]["id"], jobs[0]["id"]]


def test_the_same_again_is_found(asking):
    first = asking.done(asking.job(start=1, stop=2))
    assert asking.done(asking.job(start=1, stop=2))["aggregation"] == first["aggregation"]


def test_too_many(asking, slow):
    for _ in range(8):
        asking.job(start=1, stop=1)
    assert asking.http.post("/api/aggregations", json={"start": 1}).status_code == 503
    for job in asking.json("/api/jobs"):
        asking.http.delete(f"/api/jobs/{job['id']}")


@pytest.fixture
def slow(monkeypatch):
    """A process that works for ever: it starts, and waits."""
    from pyprof.server import engine

    monkeypatch.setattr(
        engine,
        "_START",
        'import time; print(\'{"progress": 0.5, "what": "copying"}\', flush=True); time.sleep(60)',
    )
    return engine


def state(asking, job):
    return asking.json(f"/api/jobs/{job['id']}")


def test_cancelling_ends_the_process(asking, slow, children):
    asking.json("/api/profile")
    before = children()
    job = asking.job(start=1, stop=2)
    waiting = asking.job(start=2, stop=3)
    until(lambda: state(asking, job)["progress"] == 0.5)
    assert state(asking, waiting)["state"] == "waiting"
    assert len(children() - before) == 1
    assert asking.http.delete(f"/api/jobs/{waiting['id']}").json()["state"] == "cancelled"
    asking.http.delete(f"/api/jobs/{job['id']}")
    until(lambda: state(asking, job)["state"] == "cancelled")
    until(lambda: not children() - before)
    assert asking.http.delete(f"/api/jobs/{job['id']}").json()["state"] == "cancelled"


def test_a_process_that_is_killed(asking, slow, children, monkeypatch):
    asking.json("/api/profile")
    before = children()
    job = asking.job(start=1, stop=2)
    until(lambda: state(asking, job)["progress"] == 0.5)
    (child,) = children() - before
    os.kill(child, signal.SIGKILL)
    until(lambda: state(asking, job)["state"] == "failed")
    assert "was ended" in state(asking, job)["error"]
    monkeypatch.undo()
    assert len(asking.json("/api/profile")["aggregations"]) == 1
    assert asking.done(asking.job(start=1, stop=2))["state"] == "done"  # the next one works


def test_no_such_job(asking):
    for method, path in (("GET", "/api/jobs/x"), ("DELETE", "/api/jobs/x"), ("GET", "/api/jobs/x/events")):
        assert asking.http.request(method, path).status_code == 404


def test_reading_goes_on_while_it_runs(asking):
    job = asking.job(start=0, stop=1)
    wrong = []

    def read():
        for _ in range(20):
            found = asking.http.get("/api/reports/detail", params={"aggregation": 1})
            if found.status_code != 200:
                wrong.append(found.text)

    readers = [threading.Thread(target=read) for _ in range(3)]
    for one in readers:
        one.start()
    assert asking.done(job)["state"] == "done"
    for one in readers:
        one.join()
    assert not wrong


def test_the_copy_lies_in_the_cache_alone(asking):
    path = asking.server.library.path
    asking.done(asking.job(start=1, stop=1))
    assert [one.name for one in path.parent.iterdir()] == [path.name]
    assert cache.database(cache.Stamp.of((path, None))).exists()
    assert cache.cache_folder().stat().st_mode & 0o077 == 0
