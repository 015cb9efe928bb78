# SPDX-License-Identifier: Apache-2.0
"""What is run with a file: the commands, as their `main` is called, and the viewer without its server."""

from __future__ import annotations

import asyncio
import io
import random
import re
import sqlite3
import sys
from contextlib import closing
from functools import cache
from pathlib import Path
from typing import Any

from pyprof.commands.main import main
from pyprof.core.frame import run_command

REPORTS = (
    "summary", "kernel", "operator", "iteration", "step_time", "expert_systems", "detail", "group_node", "op_type",
    "memory", "coverage", "module", "idle",
)  # fmt: skip
COLUMNS = "idx,kernel,op,seq,module,phase,params,sil,flops,bytes,grid,bound,gbs"
REQUESTS = (
    "/api/profile", "/api/overview", "/api/insights", "/api/ledger", "/api/reports/operator", "/api/reports/kernel",
    "/api/trees/{tree}", "/api/iterations", "/api/launches", "/api/memory?points=50", "/api/step_time", "/api/roofline",
    "/api/iterations/bars", "/api/key_operators", "/api/details/op/0", "/api/details/kernel/0", "/api/details/launch/0",
)  # fmt: skip


def words(name: str, file: Path, seed: Path, dice: random.Random) -> list[str]:
    """The arguments of a command; some of its options by chance."""
    format_ = dice.choice(("table", "csv", "json", "md"))
    report = dice.choice(REPORTS)
    by = dice.choice(("operator", "kernel"))
    chosen: dict[str, list[list[str]]] = {
        "report": [["report"], ["report", "--format", format_, report], ["report", report]],
        "prof": [["prof"], ["prof", "--csv", "-c", COLUMNS], ["prof", "--memory"]],
        "parse": [["parse"], ["parse", "--memory"], ["parse", "--format", "jsonl"]],
        "save": [["save", "-o", "out"], ["save", "-o", "out", "--iter-start", "0", "--iter-stop", "0"]],
        "export": [["export", "-o", "out"], ["export", "--format", "speedscope", "-o", "out"]],
        "diff": [["diff", "--by", by, str(seed)]],
        "info": [["info"], ["info", "--json"]],
        "view": [["view"]],
    }
    return [*dice.choice(chosen[name]), str(file)]


DAMAGED = "a damaged database"
COMMANDS = ("report", "prof", "parse", "save", "export", "diff", "info", "view")
CHEAP = ("prof", "parse", "info")


def run(arguments: list[str]) -> int:
    """Run a command in this process; returns its exit code."""
    if arguments[0] == "view":
        return run_command("pyprof view", lambda: asyncio.run(_view(arguments[1])))
    return main(arguments)


def made(path: Path) -> str:
    """What a command wrote, as text: of a database its rows, without what depends on the hour and on the file."""
    if not path.exists():
        return ""
    data = path.read_bytes()
    if not data.startswith(b"SQLite format 3"):
        return data.decode(errors="backslashreplace")
    with closing(sqlite3.connect(path)) as connection:
        try:
            return "\n".join(line for line in connection.iterdump() if not _of_the_hour(line))
        except sqlite3.DatabaseError:
            return DAMAGED


def _of_the_hour(line: str) -> bool:
    return line.startswith(('INSERT INTO "meta" VALUES(\'created', 'INSERT INTO "aggregation"'))


# --- the viewer: its library, its routes and its tasks, without sockets and child processes


class Inline:
    """A child process of the viewer that is this process."""

    alive, spent = True, False

    def __init__(self, path: str):
        from pyprof.server.child import Session

        self._session = Session(path)

    @staticmethod
    async def start(path: str) -> Inline:
        return Inline(path)

    async def do(self, task: str, args: dict[str, Any], progress: Any = None, payload: bytes = b"") -> Any:
        import json

        import pyarrow as pa

        from pyprof.server.child import _answer
        from pyprof.views.problems import Trouble

        out = io.BytesIO()
        _answer(out, self._session, {"task": task, "args": args}, payload)
        out.seek(0)
        while "progress" in (found := json.loads(out.readline())):
            pass
        if "trouble" in found:
            body = found["trouble"]
            raise Trouble(body["type"], body["detail"], body["parameter"])
        data = out.read()
        return found["result"], pa.ipc.open_stream(data).read_all() if data else None

    async def stop(self) -> None:
        if "_store" in self._session.__dict__:
            self._session.store.close()


_CHANCE = re.compile(r'"version":"[0-9a-f]{16}"|"modified":[0-9.]+')  # of a database that is served, of its file


@cache
def _application() -> Any:
    """The routes, which take a while to make: one application for all files."""
    from pyprof.server import engine, library
    from pyprof.server.app import build

    engine.Child = library.Child = Inline  # type: ignore[misc, assignment]
    return build(None)  # type: ignore[arg-type]


async def _view(file: str) -> None:
    """Open a file as `pyprof view` does, and ask for what the page asks for."""
    import httpx

    from pyprof.server.library import Library
    from pyprof.server.request_context import Server

    application = _application()
    library = Library(file)
    try:
        await library.wait("", lambda share, what: None)
        application.state.server = Server(library, None)
        transport = httpx.ASGITransport(application, raise_app_exceptions=False)
        async with httpx.AsyncClient(transport=transport, base_url="http://localhost", timeout=60) as client:
            for request in REQUESTS:
                answer = await client.get(request.format(tree="modules"))
                print(request, answer.status_code)
                print(_CHANCE.sub("", answer.text))
                if answer.status_code >= 500 and answer.json()["type"] != "slow":
                    print(f"{request}: {answer.json()['detail']}", file=sys.stderr)
    finally:
        await library.close()
