# SPDX-License-Identifier: Apache-2.0
"""Requests end: when time is up, when who asked has gone; and what several ask for is worked out once."""

from __future__ import annotations

import asyncio
import socket
import threading
import time
from urllib.parse import urlsplit

import httpx
import pytest

from pyprof.server import engine, request_context
from pyprof.server.guarded_store import Deadline
from pyprof.views import overview
from pyprof.views.problems import Trouble
from tests.server.conftest import serving
from tests.waiting import until

FOREVER = "with recursive n(i) as (select 1 union all select i + 1 from n) select max(i) from n"


@pytest.fixture
def endless(monkeypatch):
    """A dashboard that takes for ever: what ended it, and how many times it was begun."""
    ended, begun = [], threading.Event()

    def work(source):
        begun.set()
        try:
            source.store.rows(FOREVER)
        except Trouble as trouble:
            ended.append(trouble.type)
            raise

    monkeypatch.setattr(overview, "overview", work)
    return ended, begun


def test_a_statement_ends_when_time_is_up(made, endless, monkeypatch):
    monkeypatch.setattr(request_context, "Deadline", lambda seconds: Deadline(0.2))
    with serving(made) as client:
        found = client.json("/api/overview", 503)
        assert found["type"] == "slow"
        assert "Narrow it down" in found["detail"]
        monkeypatch.setattr(request_context, "Deadline", Deadline)
        client.json("/api/iterations")


def leave(client, path, begun):
    """Ask, and go away as soon as the work has begun."""
    with socket.create_connection((urlsplit(client.url).hostname, urlsplit(client.url).port)) as asks:
        asks.sendall(f"GET {path} HTTP/1.1\r\nHost: {urlsplit(client.url).netloc}\r\n\r\n".encode())
        until(begun)


def test_a_statement_ends_when_the_client_leaves(made, endless):
    ended, begun = endless
    with serving(made) as client:
        client.json("/api/profile")
        leave(client, "/api/overview", begun.is_set)
        until(lambda: ended == ["slow"])  # long before its five seconds


SLEEPS = "import time; time.sleep(60)"


def test_a_process_ends_when_the_client_leaves(made, monkeypatch, children):
    monkeypatch.setattr(engine, "_GRACE", 0.1)
    with serving(made) as client:
        client.json("/api/profile")
        before = children()
        monkeypatch.setattr(engine, "_START", SLEEPS)
        leave(client, "/api/reports/detail", lambda: children() - before)
        until(lambda: not children() - before)
        monkeypatch.undo()
        client.json("/api/reports/detail")  # and the next one is answered


def test_who_asks_while_a_process_is_on_its_way_out_gets_an_answer_of_his_own(monkeypatch):
    """The work that nobody waits for is cancelled, and its process takes a while to end."""
    monkeypatch.setattr(engine, "_GRACE", 0.01)
    calls = []

    async def do(self, task, args):
        calls.append(task)
        if len(calls) > 1:
            return "answer", None
        try:
            await asyncio.sleep(60)
        finally:
            ending.set()
            await asyncio.sleep(0.2)

    async def main():
        made = engine.Engine("nowhere")
        first = asyncio.ensure_future(made.ask("report", lambda answer: answer[0]))
        await asyncio.sleep(0.01)
        first.cancel()
        await ending.wait()
        assert await made.ask("report", lambda answer: answer[0]) == "answer"
        await made.close()

    ending = asyncio.Event()
    monkeypatch.setattr(engine.Engine, "_do", do)
    asyncio.run(main())
    assert len(calls) == 2


def test_a_process_ends_when_time_is_up(made, monkeypatch, children):
    monkeypatch.setattr(engine, "_GRACE", 0.1)
    monkeypatch.setattr(request_context, "PATIENCE", 0.3)
    with serving(made) as client:
        client.json("/api/profile")
        before = children()
        monkeypatch.setattr(engine, "_START", SLEEPS)
        assert client.json("/api/reports/detail", 503)["type"] == "slow"
        until(lambda: not children() - before)


def test_what_several_ask_for_is_worked_out_once(made, monkeypatch):
    done = []
    work = engine.Engine._do

    async def counted(self, task, args):
        done.append((task, args["name"]))
        return await work(self, task, args)

    monkeypatch.setattr(engine.Engine, "_do", counted)
    with serving(made) as client:
        client.json("/api/profile")
        asks = [
            threading.Thread(target=client.json, args=("/api/reports/op_type",), kwargs={"sort": sort})
            for sort in ("gpu", "-gpu", "type", "cpu")
        ]
        for one in asks:
            one.start()
        for one in asks:
            one.join()
        client.json("/api/reports/op_type", search="mm")
        assert done == [("report", "op_type")]
        client.json("/api/reports/op_type", worker=0)
        assert len(done) == 2


def test_one_who_leaves_takes_nothing_from_the_others(made, monkeypatch):
    monkeypatch.setattr(engine, "_GRACE", 0.05)
    monkeypatch.setattr(engine, "_START", f"import time; time.sleep(1); {engine._START}")
    with serving(made) as client:
        client.json("/api/profile")
        found = []
        stays = threading.Thread(target=lambda: found.append(client.json("/api/reports/op_type")))
        stays.start()
        with pytest.raises(httpx.TimeoutException):
            httpx.get(f"{client.url}/api/reports/op_type", timeout=0.3, trust_env=False)
        stays.join()
        assert found[0]["total"] == 5


def test_who_comes_back_soon_finds_the_work_under_way(made, monkeypatch):
    monkeypatch.setattr(engine, "_GRACE", 0.5)
    monkeypatch.setattr(engine, "_START", f"import time; time.sleep(1); {engine._START}")
    with serving(made) as client:
        client.json("/api/profile")
        with pytest.raises(httpx.TimeoutException):
            httpx.get(f"{client.url}/api/reports/op_type", timeout=0.2, trust_env=False)
        assert client.json("/api/reports/op_type")["total"] == 5


def test_answers_are_kept_while_there_is_room(made, monkeypatch):
    monkeypatch.setattr(engine, "_ROOM", 1)
    with serving(made) as client:
        for name in ("detail", "op_type", "kernel"):
            client.json(f"/api/reports/{name}")
        kept = client.server.library._opened[""].engine._answers
        assert len(kept) == 1


def test_a_fault_is_a_problem_and_says_nothing_of_the_inside(made, monkeypatch, caplog):
    monkeypatch.setattr(overview, "overview", lambda source: 1 / 0)
    with serving(made) as client:
        found = client.http.get("/api/overview")
        assert (found.status_code, found.json()["type"]) == (500, "internal")
        assert "Traceback" not in found.text
        time.sleep(0.1)
        assert client.json("/api/profile")["name"] == "net"
