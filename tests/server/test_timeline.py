# SPDX-License-Identifier: Apache-2.0
"""Routes of the timeline: tiles are those of the database, sums are those of the reports, damage is a sentence."""

from __future__ import annotations

import gzip
import json
import random
import sqlite3
from collections.abc import Callable
from contextlib import closing
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from pyprof import profiles
from pyprof.core.marker import readable
from pyprof.timeline import tiles
from pyprof.views import timeline
from pyprof.views.durations import summary
from tests import build
from tests.build import LONG
from tests.server.conftest import STEPS, Asking, serving


def track(client: Asking, kind: str, **of: Any) -> dict[str, Any]:
    """The first track of a kind."""
    tracks = client.json("/api/timeline")["tracks"]
    return next(one for one in tracks if one["kind"] == kind and all(one[key] == value for key, value in of.items()))


def decoded(body: bytes) -> list[tiles.Tile]:
    """Tiles that follow one another."""
    out = []
    while body:
        rows, lanes, level = (int.from_bytes(body[at : at + 4], "little") for at in (0, 4, 8))
        size = tiles.size(rows, lanes, level)
        out.append(tiles.unpack(body[:size]))
        body = body[size:]
    return out


def finest(one: dict[str, Any]) -> str:
    """A query for all tiles of the finest level of a track."""
    level, shift = one["levels"][0]
    return f"{level}:{one['start'] >> shift}-{one['end'] >> shift}:{one['id']}"


def test_tracks(client: Asking, prof: profiles.Profile) -> None:
    answer = client.json("/api/timeline")
    kinds = [one["kind"] for one in answer["tracks"]]
    assert {"range", "api", "stream", "idle"} <= set(kinds)
    assert sum(one["events"] for one in answer["tracks"] if one["kind"] == "stream") == 5 * STEPS
    assert [(one["number"], one["start"], one["end"]) for one in answer["steps"]] == prof.database.rows(
        "select number, start_ns, end_ns from step order by start_ns"
    )
    assert {one["name"] for one in answer["tracks"] if one["kind"] == "stream"} == {
        "GPU 0 stream 7",
        "GPU 0 stream 8",
    }


def test_steps_end_with_their_work(tmp_path: Path) -> None:
    """As in the report step_time: the program marked the second one while the kernel of the first was running."""
    recording = build.recording("torch.mul\n  > 1000 slow\ntorch.mul\n  > 1000 slow\n")
    first, second = (one for one in recording.ranges)
    recording.steps = [(7, first.start, first.end), (8, first.end, second.end)]
    path = tmp_path / "net_dldb.sqlite"
    prof = profiles.load(build.write_capture(tmp_path / "net.sqlite", recording))
    prof.save(path)
    zero = min(first.start, recording.kernels[0].start)
    ends = [kernel.end - zero for kernel in recording.kernels]
    assert first.end - zero < ends[0] < second.start - zero + 1000
    with serving(path) as asking:
        steps = asking.json("/api/timeline")["steps"]
    assert [(one["number"], one["start"], one["end"]) for one in steps] == [(7, 0, ends[0]), (8, *ends)]
    report = prof.report("step_time")
    assert report["total_ns"].tolist() == [one["end"] - one["start"] for one in steps]


def test_tiles_have_the_events_of_their_tracks(client: Asking, prof: profiles.Profile) -> None:
    one = track(client, "stream", stream=7)
    body = client.http.get(
        "/api/timeline/tiles", params={"q": finest(one)}, headers={"accept-encoding": "identity"}
    ).content
    events = {
        (id_, start, start + length)
        for id_, start, length in prof.database.rows(
            "select id, start_ns, duration_ns from event where stream = 7 and device = 0"
        )
    }
    records = [tile.records for tile in decoded(body)]
    assert {row for part in records for row in zip(part.id.tolist(), part.start.tolist(), part.end.tolist())} == events


def test_a_browser_gets_the_frames_as_they_are_stored(client: Asking) -> None:
    query = f"{finest(track(client, 'stream', stream=7))};{finest(track(client, 'range'))}"
    with client.http.stream(
        "GET", "/api/timeline/tiles", params={"q": query}, headers={"accept-encoding": "zstd, gzip"}
    ) as answer:
        assert answer.headers["content-encoding"] == "zstd"
        frames = b"".join(answer.iter_raw())
    plain = client.http.get("/api/timeline/tiles", params={"q": query}, headers={"accept-encoding": "identity"}).content
    assert pa.input_stream(pa.BufferReader(frames), compression="zstd").read() == plain
    assert len(decoded(plain)) == 2


def test_tiles_are_kept_while_the_database_is_the_same(client: Asking) -> None:
    query, version = finest(track(client, "range")), client.json("/api/timeline")["version"]
    for v, kept in ((version, True), ("other", False)):
        answer = client.http.get("/api/timeline/tiles", params={"q": query, "v": v})
        assert ("immutable" in answer.headers.get("cache-control", "")) == kept


@pytest.mark.parametrize(
    "query",
    ["", "x", "0:0-0", "0:0-0:", "0:5-4:1", "0:0-0:1;", "63:0-0:" + "1," * 2000 + "1", "0:-1--9:1",
     f"0:0-{1 << 63}:1", "0:0-0:1'; drop table tile"],
)  # fmt: skip
def test_a_query_that_is_none(client: Asking, query: str) -> None:
    assert client.json("/api/timeline/tiles", 422, q=query)["parameter"] == "q"


def test_too_many_tiles_are_refused_however_far_apart(client: Asking, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(timeline, "_TILES", 1)
    one, other = track(client, "stream", stream=7)["id"], track(client, "range")["id"]
    far = f"{-(1 << 61)}-{1 << 61}"
    assert client.http.get("/api/timeline/tiles", params={"q": f"0:{far}:{one}"}).status_code == 200
    refused = client.json("/api/timeline/tiles", 422, q=f"0:{far}:{one},{other}")
    assert refused["detail"] == "q: more than 1 tiles or 32 MiB; ask for less."


def test_durations_of_a_module_on_a_device_are_apart_from_those_on_a_thread(client: Asking) -> None:
    """Both kinds of tracks have the same name; each event is counted on its own side."""
    run = client.json("/api/timeline")
    sides = {
        device: [one for one in run["tracks"] if one["kind"] == "module" and (one["device"] is not None) == device]
        for device in (True, False)
    }
    assert all(sides.values())
    counts = {}
    for device, tracks in sides.items():
        records = [
            tile.records
            for one in tracks
            for tile in decoded(client.http.get("/api/timeline/tiles", params={"q": finest(one)}).content)
        ]
        name = int(records[0].name[0])
        expected = sum(int((part.name == name).sum()) for part in records)
        answer = client.json(
            "/api/timeline/durations",
            track=tracks[0]["id"],
            name=name,
            start=run["start"],
            end=run["end"] + 1,
        )
        counts[device] = answer["count"]
        assert answer["count"] == expected


def test_what_there_is_not_is_empty(client: Asking) -> None:
    assert client.http.get("/api/timeline/tiles", params={"q": "14:900000-900001:0,77"}).content == b""


def test_texts_as_a_person_reads_them(client: Asking, prof: profiles.Profile) -> None:
    """Markers are decoded; names of kernels are short."""
    strings = dict(prof.database.rows("select id, text from string"))
    number = next(id_ for id_, text in strings.items() if "torch" in text and "'mm'" in text)
    answer = client.json("/api/timeline/texts", of=[f"string,{number}", "kernel_name,0,1", "label,99"])
    assert answer["string"] == {str(number): "torch.mm"}
    short = dict(prof.database.rows("select id, short_name from kernel_name where id < 2"))
    assert answer["kernel_name"] == {str(id_): text for id_, text in short.items()}
    assert answer["label"] == {}
    for wrong in ("worker,1", "string,x", "string,1" + ",1" * 2001):
        assert client.json("/api/timeline/texts", 422, of=wrong)["parameter"] == "of"


def test_colors_are_groups_by_time(client: Asking, prof: profiles.Profile) -> None:
    table = prof.report("kernel_summary")
    answer = client.json("/api/timeline/colors", by="kernel")
    groups = answer["groups"]
    assert [one["time"] for one in groups] == sorted((one["time"] for one in groups), reverse=True)
    assert sum(one["time"] for one in groups) == prof.database.rows("select sum(duration_ns) from event")[0][0]
    assert len(table) > 0
    types = client.json("/api/timeline/colors")
    names = dict(prof.database.rows("select id, type from operator"))
    assert [types["groups"][group]["label"] for group in types["group"]] == [names[id_] for id_ in sorted(names)]


def test_the_arrows_of_a_launch_and_of_its_call(client: Asking, prof: profiles.Profile) -> None:
    event, call, thread, begin, length = prof.database.rows(
        """select e.id, a.id, a.thread, a.start_ns, a.duration_ns from event e join api a on a.id = e.api
           order by e.id limit 1 offset 3"""
    )[0]
    (arrow,) = client.json("/api/timeline/flows", of=f"launch:{event}")["flows"]
    assert arrow["kind"] == "launch"
    assert arrow["source"] == {
        "track": track(client, "api", thread=thread)["id"], "kind": "call", "id": call, "start": begin,
        "end": begin + length,
    }  # fmt: skip
    assert (arrow["target"]["kind"], arrow["target"]["id"]) == ("launch", event)
    assert client.json("/api/timeline/flows", of=f"call:{call}")["flows"] == [arrow]
    for wrong, status in (
        ("launch:999999", 404),
        ("kernel:1", 422),
        ("launch:x", 422),
        ("call:" + "9" * 30, 422),
    ):
        client.json("/api/timeline/flows", status, of=wrong)


def test_the_arrows_of_an_operator_are_its_kernels(client: Asking, prof: profiles.Profile) -> None:
    """From the range that the execution begins with."""
    execution, thread, start = prof.database.rows(
        "select o.id, o.thread, o.start_ns from op o join operator x on x.id = o.operator where x.type = 'mm' limit 1"
    )[0]
    ((range_,),) = prof.database.rows("select min(id) from range where thread = ? and start_ns = ?", (thread, start))
    arrows = client.json("/api/timeline/flows", of=f"range:{range_}")["flows"]
    events = [id_ for (id_,) in prof.database.rows("select id from event where op = ? order by id", (execution,))]
    assert [(one["kind"], one["target"]["id"]) for one in arrows] == [("operator", id_) for id_ in events]
    assert len(events) == 2


def test_the_details_of_a_range_and_a_call(client: Asking, prof: profiles.Profile) -> None:
    number, start, length = prof.database.rows(
        """select r.id, r.start_ns, r.duration_ns from range r join string s on s.id = r.text
           where s.text like '%''mm''%' limit 1"""
    )[0]
    details = client.json(f"/api/details/range/{number}")
    assert (details["title"], details["start"], details["end"]) == ("torch.mm", start, start + length)
    assert [one["kind"] for one in details["partners"]] == ["op"]
    assert details["tables"][0]["total"] == 2
    call = client.json(f"/api/details/call/{prof.database.rows('select min(api) from event')[0][0]}")
    assert call["subtitle"] == "API call"
    assert call["tables"][0]["total"] == 1
    for kind in ("range", "call"):
        client.json(f"/api/details/{kind}/123456", 404)
        client.json(f"/api/details/{kind}/x", 404)


# --- sums of a stretch


def sums(client: Asking, start: int, end: int) -> dict[str, Any]:
    return dict(client.json("/api/timeline/selection", start=start, end=end))


def test_a_stretch_adds_up(client: Asking, prof: profiles.Profile) -> None:
    """Against the events of the database, clipped by hand; two halves are the whole."""
    low, high = prof.database.rows("select start_ns, end_ns from worker")[0]
    events = prof.database.rows("select start_ns, start_ns + duration_ns, name, operator from event")
    names = dict(prof.database.rows("select id, coalesce(short_name, name) from kernel_name"))
    choose = random.Random(7)
    for _ in range(20):
        start, end = sorted(choose.sample(range(low - 50, high + 50), 2))
        answer = sums(client, start, end)
        inside = [(max(a, start), min(b, end), name) for a, b, name, _ in events if a < end and b > start]
        table = next(one for one in answer["tables"] if one["key"] == "kernel")
        by_name: dict[str, int] = {}
        for a, b, name in inside:
            by_name[names[name]] = by_name.get(names[name], 0) + b - a
        assert {row["label"]: row["time"] for row in table["rows"]} == by_name
        for one in answer["tables"]:
            assert one["total"] == sum(row["time"] for row in one["rows"]) == sum(b - a for a, b, _ in inside)
            assert one["events"] == len(inside)
        busy = len({time for a, b, _ in inside for time in range(a, b)})
        length = max(min(end, high) - max(start, low), 0)
        for device in answer["devices"]:
            assert device["busy"] == busy
            assert device["busy"] + device["idle"] == device["length"] == length
            assert sum(cause["time"] for cause in device["causes"]) == device["idle"]
            for cause in device["causes"]:
                gap = client.json(f"/api/details/gap/{cause['gap']}")
                assert gap["title"] == cause["cause"]
                begin, length = (one["value"] for one in gap["figures"][:2])
                assert cause["longest"] == min(begin + length, end) - max(begin, start)
                assert cause["longest"] * cause["count"] >= cause["time"] >= cause["longest"]
        middle = (start + end) // 2
        halves = [sums(client, start, middle), sums(client, middle, end)] if start < middle < end else []
        if halves:
            for at, one in enumerate(answer["tables"]):
                assert one["total"] == sum(half["tables"][at]["total"] for half in halves)


def test_a_stretch_as_a_tree_of_operators(client: Asking, prof: profiles.Profile) -> None:
    """Each node has the time of all events in its operators, clipped; own time is what those inside leave."""
    low, high = prof.database.rows("select start_ns, end_ns from worker")[0]
    start, end = low + (high - low) // 3, high - (high - low) // 4
    events = [
        (path or "", min(b, end) - max(a, start))
        for path, a, b in prof.database.rows(
            """select o.name, e.start_ns, e.start_ns + e.duration_ns from event e
               left join operator o on o.id = e.operator"""
        )
        if a < end and b > start
    ]
    answer = client.json("/api/timeline/flame", start=start, end=end)
    assert answer["total"] == sum(length for _, length in events)
    above: list[dict[str, Any]] = []
    for row in answer["rows"]:
        inside = [length for path, length in events if f"{path}/".startswith(f"{row['module']}/")]
        assert (row["total"], row["count"]) == (sum(inside), len(inside))
        assert row["self"] == sum(length for path, length in events if path == row["module"])
        above = above[: row["depth"]]
        assert not above or row["module"].startswith(f"{above[-1]['module']}/")
        above.append(row)
    assert {path for path, _ in events} <= {row["module"] for row in answer["rows"]}
    assert max(row["depth"] for row in answer["rows"]) > 1
    client.json("/api/timeline/flame", 422, start=5, end=5)


def test_the_whole_run_is_the_report_of_idle_time(client: Asking, prof: profiles.Profile) -> None:
    low, high = prof.database.rows("select min(start_ns), max(end_ns) from step")[0]
    (device,) = sums(client, low, high)["devices"]
    report = prof.report("idle", by="cause")
    shown = {one["cause"]: one["time"] for one in device["causes"]}
    within = {row.cause: row.total_ns for row in report.itertuples()}
    # The report is of the steps.
    assert within == shown
    assert set(client.json("/api/timeline")["causes"]) == set(within)  # the others do not occur
    client.json("/api/timeline/selection", 422, start=5, end=5)


# --- gaps of a device


def gaps(client: Asking) -> list[dict[str, Any]]:
    """Details of all gaps, by time."""
    count = track(client, "idle")["events"]
    return [client.json(f"/api/details/gap/0.0.{number}") for number in range(count)]


def test_gaps_are_those_of_the_report(client: Asking, prof: profiles.Profile) -> None:
    """Cause and place of each; clipped to the steps, they add up to every row of the report."""
    low, high = prof.database.rows("select min(start_ns), max(end_ns) from step")[0]
    keys = ("call", "host", "operator", "module", "line")
    sums: dict[tuple[str | None, ...], list[int]] = {}
    for one in gaps(client):
        texts = {text["key"]: text["value"] for text in one["texts"]}
        start, end = max(one["start"], low), min(one["end"], high)
        if start < end:
            sums.setdefault((one["title"], *(texts.get(key) for key in keys)), []).append(end - start)
    report = prof.report("idle")
    assert {key: (len(times), sum(times), max(times)) for key, times in sums.items()} == {
        (row.cause, row.call, row.host and readable(row.host), row.operator, row.module, row.line): (
            row.count, row.total_ns, row.longest_ns,
        )
        for row in report.astype(object).where(report.notna(), None).itertuples()
    }  # fmt: skip
    assert len({one["title"] for one in gaps(client)}) > 1


def test_gaps_have_the_times_of_their_track(client: Asking) -> None:
    one = track(client, "idle")
    body = client.http.get(
        "/api/timeline/tiles", params={"q": finest(one)}, headers={"accept-encoding": "identity"}
    ).content
    records = decoded(body)[0].records
    shown = gaps(client)
    assert [(gap["start"], gap["end"]) for gap in shown] == list(zip(records.start.tolist(), records.end.tolist()))
    assert [gap["id"] for gap in shown] == [f"0.0.{number}" for number in records.id.tolist()]


def test_an_event_knows_the_gap_before_it(client: Asking, prof: profiles.Profile) -> None:
    """And the gap the event that ended it. An event that begins while another one runs has none."""
    ends = {one["end"]: one for one in gaps(client)}
    ended = 0
    for number, start in prof.database.rows("select id, start_ns from event"):
        before = [
            (one["id"], one["title"])
            for one in client.json(f"/api/details/launch/{number}")["partners"]
            if one["relation"] == "idle before"
        ]
        if start not in ends:
            assert before == []
            continue
        gap = ends[start]
        assert before == [(gap["id"], f"{gap['title']}, {start - gap['start']:,} ns")]
        ended += [one["id"] for one in gap["partners"] if one["relation"] == "ended by"] == [str(number)]
    assert ended == len(ends) - 1  # nothing ends the last


def test_gaps_that_there_are_not(client: Asking) -> None:
    for id_ in ("0.0.100000", "0.5.0", "9.0.0", "0.0", "x", "0.0.-1"):
        assert "gap" in client.json(f"/api/details/gap/{id_}", 404)["detail"]


# --- durations of a name


def test_a_median_is_a_duration_that_occurs() -> None:
    """Of 1 to 20 ns, ten are at most 10 and nineteen at most 19; of two, the shorter is half."""
    one = summary(np.arange(20, 0, -1))
    assert (one.count, one.total, one.shortest, one.median, one.p95, one.longest) == (20, 210, 1, 10, 19, 20)
    assert summary(np.array([9, 4])).median == 4
    none = summary(np.array([], np.int64))
    assert (none.count, none.median, none.p95, none.edges, none.counts) == (0, None, None, [], [])
    wide = summary(np.array([0, 3, 1 << 61]))
    assert sum(wide.counts) == 3
    assert (wide.edges[0], wide.edges[-1]) == (0, (1 << 61) + 1)


def test_durations_are_those_of_the_events(client: Asking, prof: profiles.Profile) -> None:
    """In any stretch, over all streams, each event whole; buckets are counted one by one."""
    low, high = prof.database.rows("select start_ns, end_ns from worker")[0]
    one, choose = track(client, "stream", stream=7), random.Random(11)
    for name in {row[0] for row in prof.database.rows("select name from event")}:
        start, end = sorted(choose.sample(range(low, high), 2))
        lengths = sorted(
            length
            for (length,) in prof.database.rows(
                "select duration_ns from event where name = ? and start_ns < ? and start_ns + duration_ns > ?",
                (name, end, start),
            )
        )
        answer = client.json("/api/timeline/durations", track=one["id"], name=name, start=start, end=end)
        assert (answer["count"], answer["total"]) == (len(lengths), sum(lengths))
        if not lengths:
            assert answer["median"] is None
            continue
        for key, share in (("median", 0.5), ("p95", 0.95)):
            assert answer[key] == next(
                length for length in lengths if sum(other <= length for other in lengths) >= share * len(lengths)
            )
        edges = answer["edges"]
        assert answer["counts"] == [
            sum(first <= length < last for length in lengths) for first, last in pairwise(edges)
        ]
        assert sum(answer["counts"]) == len(lengths)


def test_durations_that_there_are_not(client: Asking) -> None:
    of = {"track": 0, "name": 0, "start": 0}
    assert client.json("/api/timeline/durations", 422, **of, end=0)["parameter"] == "end"
    assert "track 999" in client.json("/api/timeline/durations", 404, **(of | {"track": 999}), end=9)["detail"]


# --- search in events


def searched(client: Asking, find: str, **more: Any) -> list[tuple[int, int, int, int]]:
    """Track, id, start and end of all hits."""
    hits = client.json("/api/timeline/hits", find=find, limit=200, **more)["hits"]
    return [(one["track"], one["id"], one["start"], one["end"]) for one in hits]


def all_events(client: Asking, prof: profiles.Profile) -> list[tuple[int, str, int, int, int, str | None]]:
    """Every event of the tracks of streams and ranges: track, text, id, start, end, operator; by start."""
    streams = {one["stream"]: one["id"] for one in client.json("/api/timeline")["tracks"] if one["kind"] == "stream"}
    out = [
        (streams[stream], name, id_, start, start + length, operator)
        for stream, name, id_, start, length, operator in prof.database.rows(
            """select e.stream, n.name, e.id, e.start_ns, e.duration_ns, o.name from event e
               join kernel_name n on n.id = e.name join operator o on o.id = e.operator"""
        )
    ]
    calls = track(client, "api")["id"]
    out += [
        (calls, name, id_, start, start + length, None)
        for name, id_, start, length in prof.database.rows(
            "select s.text, a.id, a.start_ns, a.duration_ns from api a join string s on s.id = a.name"
        )
    ]
    return sorted(out, key=lambda one: one[3])


def test_a_search_finds_every_event_of_a_name(client: Asking, prof: profiles.Profile) -> None:
    """Kernels and calls, in the order of their starts, and no other."""
    for find in ("gemm", "SGEMM", "cudaLaunch", "Synchronize"):
        expected = [one for one in all_events(client, prof) if find.lower() in one[1].lower()]
        assert [one[:4] for one in searched(client, find)] == [(one[0], *one[2:5]) for one in expected]
        assert len(expected) >= STEPS


FILTERS: tuple[tuple[str, Callable[[Any], bool]], ...] = (
    ("gemm dur:>31ns", lambda one: "gemm" in one[1] and one[4] - one[3] > 31),
    ("dur:30..32 stream:8", lambda one: 30 <= one[4] - one[3] <= 32 and "sgemm" in one[1]),
    ("kernel:sgemm", lambda one: "sgemm" in one[1]),
    ("kernel:!? name:mm", lambda one: one[5] is not None and "mm" in one[5]),
    ("line:=net.py:1 kernel:gemm", lambda one: "gemm" in one[1] and one[5].endswith("mm")),
    ('line:"run.py:9" kernel:elementwise', lambda one: "elementwise" in one[1]),
    ("device:0 kernel:gemm start:<200", lambda one: "gemm" in one[1] and one[3] < 200),
)


@pytest.mark.parametrize(("find", "passes"), FILTERS, ids=[find for find, _ in FILTERS])
def test_filters_of_a_search(client: Asking, prof: profiles.Profile, find: str, passes: Callable[[Any], bool]) -> None:
    """Those of tables, by themselves and with a text."""
    expected = [(one[0], *one[2:5]) for one in all_events(client, prof) if passes(one)]
    assert searched(client, find) == expected != []


def test_a_search_that_is_none(client: Asking) -> None:
    for find, parameter in (("dur:>5parsecs", "filter"), ("dur:x", "filter"), (" ", "find")):
        assert client.json("/api/timeline/hits", 422, find=find)["parameter"] == parameter
    assert searched(client, "torch::relu") == []  # it only looks like a filter


def test_a_range_is_found_by_what_is_shown(client: Asking, prof: profiles.Profile) -> None:
    """Of a marker its name; none of its arguments."""
    found = searched(client, "torch.mm")
    marked = prof.database.rows(
        "select r.id from range r join string s on s.id = r.text where s.text like '%''mm''%' order by r.start_ns"
    )
    assert [one[1] for one in found] == [id_ for (id_,) in marked]
    assert len(found) == STEPS
    assert searched(client, "trace") == []
    assert searched(client, "=torch.mm") == found
    assert searched(client, "=torch") == []


def test_a_cause_of_idle_time_is_found(client: Asking, prof: profiles.Profile) -> None:
    (gaps,) = {one[0] for one in searched(client, "=launch-bound")}
    assert gaps == track(client, "idle")["id"]


def test_a_part_of_the_number_of_a_line_is_not_the_line(client: Asking) -> None:
    assert searched(client, "line:=net.py") == searched(client, "line:=t.py:1") == []
    assert searched(client, "line:net.py") != []


def test_how_long_the_hits_take(client: Asking) -> None:
    """Of each track, the sum of their durations."""
    found = searched(client, "gemm")
    (one,) = {one[0] for one in found if one[0] == found[0][0]}
    answer = client.json("/api/timeline/search", find="gemm", start=0, end=100)
    times = {track["track"]: track["time"] for track in answer["tracks"]}
    assert times[one] == sum(end - start for number, _, start, end in found if number == one)
    assert sum(times.values()) == sum(end - start for *_, start, end in found)


def test_where_the_hits_are(client: Asking) -> None:
    """The ticks of a stretch are the hits that touch it, each once; the counts are those of all."""
    run = client.json("/api/timeline")
    found = searched(client, "gemm")
    choose = random.Random(3)
    for _ in range(20):
        start, end = sorted(choose.sample(range(run["start"] - 50, run["end"] + 50), 2))
        answer = client.json("/api/timeline/search", find="gemm", start=start, end=end, buckets=64)
        assert answer["total"] == len(found) == sum(one["events"] for one in answer["tracks"])
        assert 64 * answer["width"] >= end - start
        ticks: dict[tuple[int, int], int] = {}
        for number, _, a, b in found:
            if a < end and b > start:
                key = number, (max(a, start) - start) // answer["width"]
                ticks[key] = ticks.get(key, 0) + 1
        assert {(one, bucket): events for one, bucket, events in answer["ticks"]} == ticks
    client.json("/api/timeline/search", 422, find="gemm", start=5, end=5)


def test_hits_from_a_place_and_from_a_time(client: Asking) -> None:
    found = searched(client, "gemm")
    assert searched(client, "gemm", offset=4) == found[4:]
    answer = client.json("/api/timeline/hits", find="gemm", at=found[5][2], limit=1)
    first = next(number for number, one in enumerate(found) if one[2] >= found[5][2])
    assert (answer["offset"], answer["total"]) == (first, len(found))
    assert client.json("/api/timeline/hits", find="gemm", offset=10**9)["hits"] == []
    assert client.json("/api/timeline/hits", 422, find="gemm", at=7, sort="dur")["parameter"] == "at"
    assert client.json("/api/timeline/hits", 422, find="gemm", start=7)["parameter"] == "end"
    assert client.json("/api/timeline/hits", find="no such thing")["total"] == 0
    assert searched(client, "gemm", worker=7) == []


def test_a_search_is_worked_out_once(client: Asking, monkeypatch: pytest.MonkeyPatch) -> None:
    """Going from hit to hit reads no event again."""
    searched(client, "volta")
    monkeypatch.setattr("pyprof.timeline.stored.events", lambda *_: pytest.fail("events were read again"))
    assert searched(client, "volta", offset=3)
    assert client.json("/api/timeline/search", find=" volta ", start=0, end=100)["total"]


# --- counters


def brute(prof: profiles.Profile, key: str, start: int, end: int) -> float:
    """A counter of device 0 in a stretch, from the definition: 80 multiprocessors, every nanosecond by itself."""
    rows = prof.database.rows(
        """select e.kind, e.tc, e.start_ns, e.start_ns + e.duration_ns, e.copied_bytes, g.grid_x * g.grid_y * g.grid_z
           from event e left join geometry g on g.id = e.geometry"""
    )
    low, high = prof.database.rows("select start_ns, end_ns from worker")[0]
    inside = range(max(start, low), min(end, high))
    part = [(row, len(range(max(row[2], inside.start), min(row[3], inside.stop)))) for row in rows]
    if key == "tensor":
        used = {t for row, _ in part if row[0] == 0 and row[1] == 1 for t in range(row[2], row[3])}
        amount = 100.0 * len(used & set(inside))
    elif key == "sm":
        amount = sum(100 * n * min(row[5], 80) / 80 for row, n in part if row[0] == 0)
    else:
        amount = sum(1e9 * row[4] * n / (row[3] - row[2]) for row, n in part if row[0] == 1)
    return amount / len(inside)


@pytest.mark.parametrize("few", [100_000, -1], ids=["events of the stretch", "buckets of the recording"])
def test_counters_are_sums_of_events(
    client: Asking, prof: profiles.Profile, monkeypatch: pytest.MonkeyPatch, few: int
) -> None:
    monkeypatch.setattr("pyprof.views.counter_values._FEW", few)
    low, high = prof.database.rows("select start_ns, end_ns from worker")[0]
    assert [one["key"] for one in client.json("/api/timeline")["counters"]] == ["tensor", "sm", "copies"]
    choose = random.Random(11)
    for _ in range(8):
        start, end = sorted(choose.sample(range(low, high), 2))
        answer = client.json(
            "/api/timeline/counters",
            worker=0,
            device=0,
            start=start,
            end=end,
            points=choose.choice([1, 3, 40]),
        )
        assert answer["start"] == start
        for one in answer["counters"]:
            for number, value in enumerate(one["values"]):
                first = start + number * answer["width"]
                expected = brute(prof, one["key"], first, first + answer["width"])
                assert value == pytest.approx(expected, rel=1e-5, abs=1e-5), (one["key"], first)
            assert set(one["unknown"]) == {0}


def test_what_is_unknown_is_no_zero(copied: Callable[[], Path], prof: profiles.Profile) -> None:
    """A kernel whose use of tensor cores is not known, in a bucket with nothing else; nothing outside the recording."""
    path = copied()
    number, start, end = prof.database.rows(
        """select id, start_ns, start_ns + duration_ns from event e where kind = 0 and not exists (
               select 1 from event o where o.id != e.id and o.start_ns < e.start_ns + e.duration_ns
               and o.start_ns + o.duration_ns > e.start_ns) limit 1"""
    )[0]
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute("update event set tc = null where id = ?", (number,))
    with serving(path) as client:
        ask = {"worker": 0, "device": 0, "points": 1}
        values = client.json("/api/timeline/counters", start=start, end=end, **ask)["counters"][0]
        assert (values["key"], values["values"], values["unknown"]) == ("tensor", [None], [100])
        values = client.json("/api/timeline/counters", start=start, end=2 * end - start, **ask)["counters"][0]
        assert values["unknown"] == [50]
        outside = client.json("/api/timeline/counters", start=10**9, end=10**9 + 5, **ask)["counters"]
        assert all(one["values"] == [None] == one["unknown"] for one in outside)


def test_counters_that_there_are_not(client: Asking) -> None:
    client.json("/api/timeline/counters", 404, worker=0, device=3, start=0, end=9)
    client.json("/api/timeline/counters", 404, worker=5, device=0, start=0, end=9)
    client.json("/api/timeline/counters", 422, worker=0, device=0, start=9, end=9)
    client.json("/api/timeline/counters", 422, worker=0, device=0, start=0, end=9, points=5000)


def test_counters_of_a_training(recorded: Callable[[str], profiles.Profile]) -> None:
    """Of a whole recording they are the metrics of PyProf; memory is what the recording says."""
    loaded = recorded("kineto/resnet50_v100_6steps.pt.trace.json.gz")
    low, high = loaded.database.rows("select start_ns, end_ns from worker")[0]
    hardware, model = loaded.database.rows("select sum(hardware_ps), sum(model_ps) from event where device = 0")[0]
    steps, in_use = [], 0
    for time, size in loaded.database.rows("select time_ns, bytes from memory where device = 0 order by id"):
        in_use += size  # this recording does not say how much was in use
        steps.append((time, in_use))
    with serving(loaded.path) as client:
        ask = {"worker": 0, "device": 0, "start": low, "end": high}
        whole = {one["key"]: one for one in client.json("/api/timeline/counters", points=1, **ask)["counters"]}
        listed = {one["key"]: one["title"] for one in client.json("/api/timeline")["counters"]}
        assert listed["allocated"] == "memory allocated since the start"
        assert whole["hfu"]["values"] == [pytest.approx(100 * hardware / 1000 / (high - low), rel=1e-5)]
        assert whole["mfu"]["values"] == [pytest.approx(100 * model / 1000 / (high - low), rel=1e-5)]
        assert 0 < whole["hfu"]["unknown"][0] < 100
        assert whole["allocated"]["values"] == [pytest.approx(max(value for _, value in steps), rel=1e-5)]
        answer = client.json("/api/timeline/counters", points=50, **ask)
        values = next(one for one in answer["counters"] if one["key"] == "allocated")["values"]
        assert values[0] is None or steps[0][0] < low + answer["width"]
        for number, value in enumerate(values):
            first, last = (low + (number + add) * answer["width"] for add in (0, 1))
            before = [size for time, size in steps if time <= first][-1:]
            most = max([*before, *(size for time, size in steps if first <= time < last)], default=None)
            assert value == (None if most is None else pytest.approx(most, rel=1e-5))


# --- export


def test_a_stretch_as_a_chrome_trace(client: Asking, prof: profiles.Profile, tmp_path: Path) -> None:
    """The file that `pyprof export` writes, with the events in progress and no others."""
    low, high = prof.database.rows("select start_ns, end_ns from worker")[0]
    start, end = low + (high - low) // 4, low + (high - low) // 2
    answer = client.http.get("/api/timeline/export", params={"start": start, "end": end})
    assert answer.headers["content-type"] == "application/gzip"
    assert f'filename="net_{start}_{end}.pt.trace.json.gz"' in answer.headers["content-disposition"]
    prof.export("chrome", tmp_path / "own.json.gz", start, end)
    assert answer.content == (tmp_path / "own.json.gz").read_bytes()
    events = json.loads(gzip.decompress(answer.content))["traceEvents"]
    kernels = [one for one in events if one.get("cat") in ("kernel", "gpu_memcpy", "gpu_memset")]
    assert len(kernels) == prof.database.rows(
        "select count(*) from event where start_ns < ? and start_ns + duration_ns > ?", (end, start)
    )[0][0]  # fmt: skip
    assert 0 < len(kernels) < 5 * STEPS
    client.json("/api/timeline/export", 422, start=5, end=5)


# --- files of strangers

DAMAGE = [
    "update tile set data = x'00'", "update tile set size_bytes = 'x'", "update tile set data = zeroblob(100000)",
    "update track set levels = 'x'", "update track set lanes = 2147483648", "delete from tile",
]  # fmt: skip
MORE_DAMAGE = [
    "update tile set data = null", "update tile set size_bytes = 5",
    "update tile set size_bytes = -1", f"update tile set size_bytes = {1 << 62}",
    "update tile set data = data || data", "update tile set data = substr(data, 1, length(data) - 1)",
    "update track set levels = '0:99'",
    "update track set levels = ''", "update track set levels = '0:0'", "update track set kind = 'other'",
    "update track set start_ns = 'x'", "delete from track",
    "update label set text = null", "update track set worker = 77", "update track set id = id + 1000000",
    "update tile set number = number - 4611686018427387904",
]  # fmt: skip


@pytest.mark.parametrize("change", [*DAMAGE, *(pytest.param(one, marks=pytest.mark.long) for one in MORE_DAMAGE)])
def test_a_damaged_timeline_is_a_sentence(copied: Callable[[], Path], change: str) -> None:
    path = copied()
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute(change)
    with serving(path) as client:
        ask_everything(client)


def ask_everything(client: Asking) -> None:
    """No answer is an internal error, and none is larger than a tile may be."""
    for route, parameters in (
        ("timeline", {}),
        ("timeline/tiles", {"q": "0:0-40:0,1,2,3,4,5,6,7,8"}),
        ("timeline/texts", {"of": ["label,0,1,2", "string,0,1"]}),
        ("timeline/colors", {"by": "module"}),
        ("timeline/selection", {"start": 0, "end": 1 << 40}),
        ("timeline/flows", {"of": "launch:3"}),
        ("timeline/search", {"find": "gemm", "start": 0, "end": 1 << 40}),
        ("timeline/hits", {"find": "dur:>10"}),
        ("timeline/hits", {"find": "dur:>10", "sort": "name"}),
        ("timeline/flame", {"start": 0, "end": 1 << 40}),
        ("timeline/durations", {"track": 0, "name": 0, "start": 0, "end": 1 << 40}),
        ("timeline/counters", {"worker": 0, "device": 0, "start": 0, "end": 1 << 40}),
        ("timeline/export", {"start": 0, "end": 1 << 40}),
        ("details/launch/3", {}),
        ("details/gap/0.0.1", {}),
    ):
        answer = client.http.get(f"/api/{route}", params=parameters, headers={"accept-encoding": "identity"})
        if answer.status_code != 200:
            assert answer.json()["type"] in ("damaged", "missing", "parameter"), (route, answer.text)
            assert len(answer.json()["detail"]) > 10


@pytest.mark.parametrize("seed", range(10 if LONG else 2))
def test_bytes_that_somebody_changed(copied: Callable[[], Path], seed: int) -> None:
    """In any place of any tile."""
    path = copied()
    choose = random.Random(seed)
    with closing(sqlite3.connect(path)) as connection, connection:
        for rowid, data in connection.execute("select rowid, data from tile").fetchall():
            changed = bytearray(data)
            for _ in range(choose.randint(1, 4)):
                changed[choose.randrange(len(changed))] ^= choose.randint(1, 255)
            connection.execute("update tile set data = ? where rowid = ?", (bytes(changed), rowid))
    with serving(path) as client:
        ask_everything(client)


@pytest.mark.parametrize("sort", ["start", "-start", "dur", "-dur", "name", "-name"])
def test_hits_in_an_order(client: Asking, sort: str):
    """Of all pages; equal ones are in the order of their starts, and each says its place in that."""
    by_start = client.json("/api/timeline/hits", find="dur:>0", limit=200)
    assert by_start["total"] <= 200
    assert by_start["places"] == list(range(by_start["total"]))
    kinds = {one["id"]: one["kind"] for one in client.json("/api/timeline")["tracks"]}
    tables = {"stream": "kernel_name", "module": "label", "loader": "label", "idle": "label"}

    def name(hit: dict[str, Any]) -> str:
        table = tables.get(kinds[hit["track"]], "string")
        texts = client.json("/api/timeline/texts", of=f"{table},{hit['name']}")
        return str(texts[table][str(hit["name"])]).casefold()

    names = {(one["track"], one["name"]): name(one) for one in by_start["hits"]}
    values = {
        "start": lambda one: one["start"],
        "dur": lambda one: one["end"] - one["start"],
        "name": lambda one: names[one["track"], one["name"]],
    }
    key = values[sort.lstrip("-")]
    expected = sorted(by_start["hits"], key=key, reverse=sort.startswith("-"))
    if sort.startswith("-"):  # reverse keeps equal ones in their order
        assert sorted(by_start["hits"], key=key) != expected
    pages = [
        client.json("/api/timeline/hits", find="dur:>0", sort=sort, limit=7, offset=at)
        for at in range(0, by_start["total"], 7)
    ]
    assert [hit for page in pages for hit in page["hits"]] == expected
    places = [place for page in pages for place in page["places"]]
    assert [by_start["hits"][place] for place in places] == expected


def test_hits_that_touch_a_stretch(client: Asking):
    every = client.json("/api/timeline/hits", find="gemm", limit=200)["hits"]
    start, end = every[2]["end"], every[5]["start"] + 1
    expected = [one for one in every if one["start"] < end and one["end"] > start]
    assert 0 < len(expected) < len(every)
    answer = client.json("/api/timeline/hits", find="gemm", start=start, end=end, sort="-dur", limit=200)
    assert answer["total"] == len(expected)
    assert answer["hits"] == sorted(expected, key=lambda one: one["start"] - one["end"])


def test_modules_have_the_time_of_their_own_code(client: Asking):
    """What modules inside a module launch is in their rows alone: net.first.act is inside net.first."""
    run = client.json("/api/timeline")
    tables = client.json("/api/timeline/selection", start=run["start"], end=run["end"])["tables"]
    rows = {row["label"]: row["time"] for row in next(one for one in tables if one["key"] == "module")["rows"]}
    assert rows["net.first"] == sum(70 + 30 + number for number in range(STEPS))
    assert rows["net.first.act"] == STEPS * 12
