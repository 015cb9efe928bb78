# SPDX-License-Identifier: Apache-2.0
"""Answers of the viewer's application to the page, view by view, for a page in one file.

The application is called in this process, without a socket; each answer is stored by its request.
"""

from __future__ import annotations

import asyncio
import base64
import itertools
import json
import struct
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple
from urllib.parse import quote, urlencode

from starlette.types import ASGIApp, Message

from pyprof.core.errors import PyProfError
from pyprof.facts.ranks.rank_steps import FIGURES
from pyprof.timeline import tiles

_PAGE = 1000  # rows of a request
_AT_ONCE = 4  # requests
_HEAD = struct.Struct("<4Iq")
_COLORS = ("type", "operator", "direction", "module", "kind", "kernel", "tc")
_TEXTS = {"stream": "kernel_name", "module": "label", "loader": "label", "idle": "label"}  # others: string
_POINTS = 2000  # buckets of counters
_ITERATIONS = 100  # with details
_OPERATORS_OF = 8  # iterations whose operators are in the file
_MOST_TEXTS = 1500  # of a request
_WAIT = 0.2  # seconds until a busy application is asked again
Query = dict[str, Any]


class Plan(NamedTuple):
    """Limits of a file: rows of a table, operators and kernels with details, buckets of a level of a track; and whether
    each event of the median step, and the share of the roofline of each event, are in it."""

    rows: int
    details: int
    buckets: int
    events: bool
    shares: bool


# Tried in this order until the file is small enough.
PLANS = (
    Plan(5000, 200, 8000, True, True),
    Plan(5000, 200, 8000, True, False),
    Plan(2000, 100, 8000, True, False),
    Plan(1000, 100, 8000, True, False),
    Plan(1000, 100, 4000, True, False),
    Plan(500, 50, 4000, True, False),
    Plan(500, 50, 4000, False, False),
    Plan(200, 50, 2000, False, False),
    Plan(100, 20, 500, False, False),
)


class Tile(NamedTuple):
    """A tile of the timeline, and its place in it."""

    track: int
    level: int
    number: int
    data: bytes


def key_of(path: str, query: Query) -> str:
    """Return the name of an answer, as api/inline.ts has it.

    >>> key_of("timeline/colors", {"by": "type"})
    'timeline/colors\\nby=type'
    """
    pairs = [f"{key}={value}" for key, value in query.items()]
    return "\n".join([path, *sorted(pairs)])


async def _call(app: ASGIApp, path: str, query: Query) -> tuple[int, bytes]:
    """Return the status and body of a GET, without a connection."""
    begun = False
    status, parts = 0, []
    scope: dict[str, Any] = {
        "type": "http", "asgi": {"version": "3.0"}, "http_version": "1.1", "method": "GET", "scheme": "http",
        "path": f"/api/{path}", "raw_path": quote(f"/api/{path}").encode(), "root_path": "", "headers": [],
        "query_string": urlencode(query, doseq=True).encode(), "client": None, "server": None,
    }  # fmt: skip

    async def receive() -> Message:
        nonlocal begun
        if begun:
            await asyncio.Event().wait()  # this client stays
        begun = True
        return {"type": "http.request", "body": b"", "more_body": False}

    async def send(message: Message) -> None:
        nonlocal status
        if message["type"] == "http.response.start":
            status = message["status"]
        else:
            parts.append(message.get("body", b""))

    await app(scope, receive, send)
    return status, b"".join(parts)


class Collected:
    """Answers of an application. `left_out`: what could not be had, in sentences."""

    def __init__(self, app: ASGIApp, aggregation: int):
        self._app, self._aggregation = app, aggregation
        self._free = asyncio.Semaphore(_AT_ONCE)
        self.answers: dict[str, Any] = {}
        self.shares: dict[str, str] = {}
        self.details: dict[str, int] = {}  # rank of an operator or kernel, by the name of its answer
        self.tables: dict[str, dict[str, Any]] = {}
        self.damage = ""  # a sentence, of a profile that has any
        self.late: set[str] = set()  # paths whose answers took too long
        self.sorts: dict[str, str] = {}  # of tables: what is first in them
        self.trees: dict[str, dict[str, Any]] = {}
        self.tiles: list[Tile] = []
        self.covered: dict[tuple[int, int], tuple[int, int, int]] = {}  # track, level: buckets, first, last tile
        self.texts: dict[str, dict[str, str]] = {}
        self.window: tuple[int, int] | None = None  # of the median step, in ns

    async def bytes(self, path: str, takes_aggregation: bool = True, **query: Any) -> bytes | None:
        """Return the body of an answer; None where there is nothing. Raises PyProfError for an error of the
        application."""
        if takes_aggregation:
            query["aggregation"] = self._aggregation
        async with self._free:
            while True:
                status, body = await _call(self._app, path, query)
                if status < 400:
                    return body
                problem = json.loads(body)
                if problem["type"] == "busy":
                    await asyncio.sleep(_WAIT)
                    continue
                if problem["type"] == "slow":
                    self.late.add(path)
                if problem["type"] == "damaged":
                    self.damage = problem["detail"]
                if problem["type"] == "internal":
                    raise PyProfError(f"{path}: {problem['detail']}")
                return None

    async def json(self, path: str, takes_aggregation: bool = True, **query: Any) -> Any:
        """Return an answer, None where there is nothing."""
        body = await self.bytes(path, takes_aggregation, **query)
        return None if body is None else json.loads(body)

    async def keep(self, path: str, takes_aggregation: bool = True, alias: Query | None = None, **query: Any) -> Any:
        """Keep an answer under what is asked, `alias` if the page asks it in other words; return it."""
        reply = await self.json(path, takes_aggregation, **query)
        if reply is not None:
            self.answers[key_of(path, query if alias is None else alias)] = reply
        return reply

    # --- tables

    async def table(self, path: str, sort: str = "", **query: Any) -> Any:
        """Keep a table with as many rows as a file may have, those that `sort` puts first if it is longer."""
        most = PLANS[0].rows
        reply = await self.json(path, limit=_PAGE, **query)
        if reply is None:
            return None
        by_cursor = not reply.get("paged", True)
        if sort and (by_cursor or reply["total"] > most):
            reply = await self.json(path, limit=_PAGE, sort=sort, **query) or reply
        rows, ids = list(reply["rows"]), list(reply.get("ids", ()))
        if by_cursor:
            reply |= {"paged": True, "next": None}
        order: Query = {"sort": sort} if sort and reply["total"] > most else {}
        while len(rows) < min(reply["total"], most) and not by_cursor:
            more = await self.json(path, limit=_PAGE, offset=len(rows), **order, **query)
            if more is None or not more["rows"]:
                break
            rows += more["rows"]
            ids += more.get("ids", ())
        ids = ids or list(range(len(rows)))
        places = sorted(range(len(rows)), key=lambda place: ids[place])[:most]
        rows, ids = [rows[place] for place in places], [ids[place] for place in places]
        kinds = [column["kind"] for column in reply["columns"]]
        self.tables[key_of(path, query)] = {
            "answer": {key: value for key, value in reply.items() if key not in ("rows", "ids", "offset")},
            "rows": rows,
            "ids": ids,
            "texts": {
                str(at): [None if row[at] is None else json.dumps(row[at]) for row in rows]
                for at, kind in enumerate(kinds)
                if kind == "object"
            },
        }
        self.sorts[key_of(path, query)] = sort
        return reply

    async def reports(self) -> None:
        """Keep every report, with each choice of its options. A default is not named: it is what is asked without."""
        for report in await self.keep("reports", False):
            names = [option["name"] for option in report["options"]]
            for values in itertools.product(*(list(option["choices"]) for option in report["options"])):
                selected = {
                    name: value
                    for name, value, option in zip(names, values, report["options"])
                    if value != option["default"]
                }
                await self.table(f"reports/{report['name']}", report["view"]["sort"], **selected)
                if report["name"] == "alive":
                    await self.table("memory/alive", report["view"]["sort"], by=values[0])

    async def tree(self, name: str) -> None:
        """Keep a tree with all its nodes, in the order in which they are without a sort."""
        path = f"trees/{name}"
        reply = await self.json(path, limit=_PAGE, open="all")
        if reply is None:
            return
        nodes, rows = list(reply["nodes"]), list(reply["rows"])
        while len(nodes) < min(reply["total"], PLANS[0].rows):
            more = await self.json(path, limit=_PAGE, offset=len(nodes), open="all")
            nodes += more["nodes"]
            rows += more["rows"]
        answer = {key: value for key, value in reply.items() if key not in ("nodes", "rows", "offset", "open")}
        self.trees[path] = {"answer": answer, "nodes": nodes, "rows": rows}

    # --- details

    async def some_details(self, profile: Any) -> None:
        """Keep the details of the largest operators and kernels, of iterations and findings."""
        most = PLANS[0].details
        targets: list[tuple[str, str, int]] = []
        for kind, path, key in (
            ("op", "reports/detail", "op_id"),
            ("kernel", "reports/kernel_summary", "name"),
        ):
            targets += [(kind, name, rank) for rank, name in enumerate(self._largest(path, key)[:most])]
        for finding in (self.answers.get("insights") or {}).get("expert", ()):
            targets.append(("finding", str(finding["id"]), -1))
        iterations = self.tables.get("iterations")
        if iterations:
            at = [column["key"] for column in iterations["answer"]["columns"]].index("iteration")
            numbers = list(dict.fromkeys(row[at] for row in iterations["rows"]))
            first = iterations["answer"]["first"]
            selected = [number for number in numbers if first <= number <= iterations["answer"]["last"]]
            targets += [("iteration", str(number), -1) for number in selected[:_ITERATIONS]]
            await asyncio.gather(
                *(self.table(f"iterations/{number}/operators", "-gpu") for number in selected[:_OPERATORS_OF])
            )
        await asyncio.gather(*(self._detail(*one) for one in targets))

    def _largest(self, path: str, key: str) -> list[str]:
        """Return names of a column of a report, those with the most time first."""
        table = self.tables.get(path)
        if table is None:
            return []
        keys = [column["key"] for column in table["answer"]["columns"]]
        time = next((name for name in ("gpu", "gpu_ns", "total_ns", "duration_ns") if name in keys), keys[0])
        at, by = keys.index(key), keys.index(time)
        rows = sorted(table["rows"], key=lambda row: -(row[by] or 0) if isinstance(row[by], (int, float)) else 0)
        return list(dict.fromkeys(row[at] for row in rows if row[at] is not None))

    async def _detail(self, kind: str, name: str, rank: int) -> None:
        reply = await self.json(f"details/{kind}/{name}")
        if reply is None:
            return
        for frame in reply["stack"]:
            frame["readable"] = False  # source text is not in the file
        key = f"details/{kind}/{quote(name, safe=_UNQUOTED)}"
        self.answers[key] = reply
        if rank >= 0:
            self.details[key] = rank

    # --- timeline

    async def timeline(self, profile: Any) -> None:
        """Keep the timeline: coarse levels, each event of the median step, names and colors."""
        described = await self.keep("timeline", False)
        if described is None:
            return
        await asyncio.gather(*(self.keep("timeline/colors", False, by=by) for by in _COLORS))
        self.window = _median_step(described, profile["aggregations"][0], self.tables.get("iterations"))
        for track in described["tracks"]:
            for level, shift in track["levels"]:
                await self._level(track, level, shift)
        await self._names(described)
        await self._selection(described["start"], described["end"])
        await self._counters(described)
        if self.window:
            await self._selection(*self.window)
        for worker in described["workers"]:
            shares = await self.bytes("timeline/roofline", False, worker=worker["id"])
            if shares:
                self.shares[key_of("timeline/roofline", {"worker": worker["id"]})] = base64.b64encode(shares).decode()

    async def _counters(self, described: Any) -> None:
        """Keep the counters of each device over the whole recording; the page draws a part of the same buckets."""
        for worker, device in dict.fromkeys((one["worker"], one["device"]) for one in described["counters"]):
            place = {"worker": worker, "device": device}
            whole = {"start": described["start"], "end": described["end"], "points": _POINTS}
            await self.keep("timeline/counters", False, alias=place, **place, **whole)

    async def _selection(self, start: int, end: int) -> None:
        await asyncio.gather(
            self.keep("timeline/selection", False, start=start, end=end),
            self.keep("timeline/selection", False, start=start, end=end, work="true"),
            self.keep("timeline/flame", False, start=start, end=end),
            self.keep("timeline/flame", False, start=start, end=end, work="true"),
        )

    async def _level(self, track: Any, level: int, shift: int) -> None:
        low, high = track["start"], track["end"]
        buckets = min(track["events"], ((high - low) >> level) + 1)
        if buckets > PLANS[0].buckets:
            if level or self.window is None:
                return
            low, high = max(low, self.window[0]), min(high, self.window[1])
            if low > high:
                return
        first, last = low >> shift, high >> shift
        # Those that exist, of which there may be few among very many numbers: events can be far apart.
        query = f"{level}:{first}-{last}:{track['id']}"
        body = await self.bytes("timeline/tiles", False, q=query)
        if body is None or len(body) > 40 * 8 * PLANS[0].buckets:
            return  # tiles of the step have far more than the step
        self.tiles += _split(body)
        self.covered[track["id"], level] = buckets, first, last

    async def _names(self, described: Any) -> None:
        kinds = {track["id"]: track["kind"] for track in described["tracks"]}
        targets: dict[str, set[int]] = {}
        for tile in self.tiles:
            names = tiles.unpack(tile.data).records.name.tolist()
            targets.setdefault(_TEXTS.get(kinds[tile.track], "string"), set()).update(names)
        for table, numbers in targets.items():
            listed = sorted(numbers)
            for first in range(0, len(listed), _MOST_TEXTS):
                part = ",".join(map(str, listed[first : first + _MOST_TEXTS]))
                reply = await self.json("timeline/texts", False, of=f"{table},{part}")
                self.texts.setdefault(table, {}).update((reply or {}).get(table, {}))


_UNQUOTED = "!'()*~-._"  # by encodeURIComponent


def _split(data: bytes) -> Iterator[Tile]:
    """Return the tiles that follow one another."""
    at = 0
    while at < len(data):
        rows, lanes, level, track, number = _HEAD.unpack_from(data, at)
        size = tiles.size(rows, lanes, level)
        yield Tile(track, level, number, data[at : at + size])
        at += size


def _median_step(described: Any, aggregation: Any, iterations: Any) -> tuple[int, int] | None:
    """Return the time of the step of median length among those of the aggregation, of iterations where the program
    marked no steps; None without either."""
    bounds = aggregation.get("steps")
    spans = [
        (step["start"], step["end"])
        for step in described["steps"]
        if bounds is None or bounds[0] <= step["number"] <= bounds[1]
    ]
    if not spans and iterations:
        keys = [column["key"] for column in iterations["answer"]["columns"]]
        number, start, end = (keys.index(key) for key in ("iteration", "start", "end"))
        spans = [
            (row[start], row[end])
            for row in iterations["rows"]
            if aggregation["first"] <= row[number] <= aggregation["last"]
        ]
    spans.sort(key=lambda span: (span[1] - span[0], span))
    return spans[(len(spans) - 1) // 2] if spans else None


async def collect(app: ASGIApp, aggregation: int, progress: Callable[[float], None]) -> Collected:
    """Ask an application for everything that a file has. Raises PyProfError."""
    out = Collected(app, aggregation)
    profile = await out.keep("profile", False)
    if profile is None:
        raise PyProfError("the profile cannot be read; open it with pyprof view, which says why.")
    ids = [one["id"] for one in profile["aggregations"]]
    selected = ids.index(aggregation) if aggregation in ids else 0
    profile["aggregations"] = profile["aggregations"][selected : selected + 1]
    profile |= {
        "runs": profile["runs"][:1],
        "runs_reason": None,
        "can_aggregate": False,
        "source_root": False,
    }
    progress(0.05)
    await asyncio.gather(
        *(out.keep(path) for path in ("overview", "insights", "step_time", "iterations/bars", "roofline")),
        out.keep("iterations/bars", most=300),
        *(out.keep("ranks/heat", figure=figure) for figure in FIGURES if len(profile["workers"]) > 1),
        out.keep("ledger", False),
        out.keep("annotations", False),
        out.keep("memory"),
    )
    progress(0.2)
    await out.reports()
    progress(0.5)
    await out.table("iterations")
    await out.table("launches", "-dur")
    await asyncio.gather(*(out.tree(name) for name in ("groups", "modules")))
    await out.some_details(profile)
    progress(0.8)
    await out.timeline(profile)
    progress(1.0)
    return out
