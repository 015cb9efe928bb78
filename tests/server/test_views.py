# SPDX-License-Identifier: Apache-2.0
"""Views that are no reports: the dashboard, events, iterations, details. Numbers are counted by hand from `steps`: in
step i kernels of 70, 30 + i, 12 and 8 + i ns and a copy of 25 ns; the one of 70 ns uses tensor cores."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from typing import Any
from urllib.parse import quote

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pyprof import profiles
from pyprof.facts.steps.source import Source
from pyprof.metrics import METRICS
from pyprof.overview.figures import figures
from pyprof.reports.headline import headline, late_rank
from pyprof.rules.evaluation import evaluate
from pyprof.views.downsample import downsample
from tests.build import call, recording, write_capture
from tests.reports.test_memory import event, load, op
from tests.server.conftest import HOSTILE, MM, RELU, STEPS, serving, steps
from tests.waiting import until

KERNELS = sum(70 + 30 + i + 12 + 8 + i for i in range(STEPS))
TC = 70 * STEPS
COPIES = 25 * STEPS


def source(prof) -> Source:
    return prof.source()


# --- the profile


def test_profile(client, made, prof):
    found = client.json("/api/profile")
    assert found["name"] == "net"
    assert found["run"] == ""
    assert [run["state"] for run in found["runs"]] == ["ready"]
    assert found["gpu"] is True
    assert [worker["id"] for worker in found["workers"]] == [0]
    one, *_ = found["aggregations"]  # other tests add some
    assert (one["id"], one["first"], one["last"], one["total"], one["method"]) == (
        1,
        0,
        STEPS - 1,
        STEPS,
        "marks",
    )
    assert found["counts"]["memory_events"] == 0
    assert found["schema_version"] == found["reads_schema"] == "2.4"
    assert found["facts"]["schema_major" if "schema_major" in found["facts"] else "t0"] == prof.database.meta["t0"]


# --- the dashboard


def test_every_figure_of_the_metrics(client, prof):
    found = {one["key"]: one for one in client.json("/api/overview")["figures"]}
    window = source(prof).window
    assert {key: one["value"] for key, one in found.items()} == {
        name: metric.function(window) for name, metric in METRICS.items()
    }
    assert found["gpu_utilization"]["denominator"] == METRICS["gpu_utilization"].denominator


def test_panels_add_up(client, prof):
    found = client.json("/api/overview")
    kernels = {part["key"]: part for part in found["kernel_time"]["parts"]}
    assert {key: part["value"] for key, part in kernels.items()} == {
        "tc": TC, "memory": COPIES, "kernel": KERNELS - TC
    }  # fmt: skip
    assert {key: part["count"] for key, part in kernels.items()} == {
        "tc": STEPS, "memory": STEPS, "kernel": 3 * STEPS
    }  # fmt: skip
    assert found["kernel_time"]["total"] == KERNELS + COPIES
    wall = source(prof).window.wall
    for name in ("resources", "gpu_utilization"):
        panel = found[name]
        parts = [part for part in panel["parts"] if part["key"] != "io"]  # not recorded: unknown, not 0
        assert sum(part["value"] for part in parts) == panel["total"] == wall
        assert sum(part["share"] for part in parts) == pytest.approx(100)
    assert {part["key"]: part["value"] for part in found["resources"]["parts"]}["io"] is None
    eligible = {part["key"]: part["value"] for part in found["tensor_cores"]["parts"]}  # of torch.mm alone
    assert eligible == {"tc": TC, "kernel": sum(30 + i for i in range(STEPS))}


def test_performance_summary(client, prof):
    found = [(one["heading"], one["value"]) for one in client.json("/api/overview")["performance"]]
    wall = source(prof).window.wall
    assert [heading for heading, _ in found] == [
        "Wall Clock Time", "Tensor Core Kernel Efficiency", "GPU Utilization", "Total Iterations",
        "Profiled Iterations", "Start Iteration", "Stop Iteration", "Average Iteration Time",
    ]  # fmt: skip
    values = dict(found)
    assert values["Total Iterations"] == values["Profiled Iterations"] == STEPS
    assert (values["Start Iteration"], values["Stop Iteration"]) == (0, STEPS - 1)
    assert values["Average Iteration Time"] == pytest.approx(wall / STEPS)
    eligible = TC + sum(30 + i for i in range(STEPS))
    assert values["Tensor Core Kernel Efficiency"] == pytest.approx(100 * TC / eligible)


def test_top_operators(client, prof):
    found = client.json("/api/overview")["top"]
    # 25 ns of copies outside of operators, 12 of relu, 8 to 13 of tanh: six each.
    groups = found["groups"]
    assert [group["type"] for group in groups] == ["mm", "unassociated_cudaLaunchKernel", "relu", "tanh"]
    assert [group["time"] for group in groups][1:] == [COPIES, 12 * STEPS, sum(8 + i for i in range(STEPS))]
    assert found["total_time"] == prof.report("detail")["gpu"].sum()
    for group in groups:
        assert group["share"] == pytest.approx(100 * group["time"] / found["total_time"])
        assert group["time"] == sum(one["time"] for one in group["members"])
        assert group["calls"] == sum(one["calls"] for one in group["members"])
        assert group["operators"] == len(group["members"])


def test_system_configuration_leaves_out_what_is_unknown(client, prof):
    found = {one["heading"]: one["value"] for one in client.json("/api/overview")["system"]}
    table = prof.report("summary")
    wanted = table[(table["section"] == "System Config") & table["value"].notna()]
    assert found == dict(zip(wanted["name"], wanted["value"]))


def test_step_time_is_the_report(client, prof):
    found = client.json("/api/step_time")
    table = prof.report("step_time")
    assert found["total"] == table["total_ns"].sum()
    assert {part["key"]: part["value"] for part in found["parts"]} == {
        key.removesuffix("_ns"): table[key].sum() for key in table if key.endswith("_ns") and key != "total_ns"
    }
    assert sum(part["value"] for part in found["parts"]) == found["total"]


def test_ledger(client, prof):
    lines = {line["line"]: line["parts"] for line in client.json("/api/ledger")["lines"]}
    for line, parts in lines.items():
        if line != "dropped":
            assert sum(part["time"] for part in parts) == KERNELS
            assert sum(part["share"] for part in parts) == pytest.approx(100)
    assert {part["part"]: part["time"] for part in lines["operator"]} == {"known": KERNELS}


def test_insights_are_the_rules(client, prof):
    found = client.json("/api/insights")
    outcomes = evaluate(source(prof))
    assert [one["id"] for one in found["expert"]] == [o.rule.id for o in outcomes if o.finding or o.needs]
    assert found["silent"] == sum(not o.finding and not o.needs for o in outcomes)
    wall = source(prof).window.wall
    for one, outcome in zip(found["expert"], outcomes):
        if outcome.finding:
            assert (one["outcome"], one["problem"], one["saving"]) == (
                "found", outcome.finding.problem, outcome.finding.saving
            )  # fmt: skip
            assert len(one["evidence"]) == len(outcome.finding.evidence)
            if one["saving"] is not None:
                assert one["share"] == pytest.approx(100 * one["saving"] / wall)
        else:
            assert (one["outcome"], one["advice"]) == ("needs", outcome.needs)


def test_links_of_findings_lead_somewhere(client):
    reports = {one["name"] for one in client.json("/api/reports")}
    seen = 0
    for one in client.json("/api/insights")["expert"]:
        for link in [one["link"], *(row["link"] for row in one["evidence"])]:
            if link is None:
                continue
            seen += 1
            path = "/api/iterations" if link["report"] == "iterations" else f"/api/reports/{link['report']}"
            assert link["report"] in reports | {"iterations"}
            client.json(path, filter=link["filters"])
    assert seen


# --- iterations


def test_iterations(client, prof):
    rows = client.table("/api/iterations")
    steps = prof.steps
    assert [row["iteration"] for row in rows] == list(range(STEPS))
    assert [row["duration"] for row in rows] == steps["duration_ns"].tolist()
    for row in rows:
        parts = [row[key] for key in ("tc", "kernel", "memory", "dataloader", "cpu", "other")]
        assert sum(parts) == row["duration"]
        assert row["io"] is None  # nothing recorded it
        i = row["iteration"]
        assert (row["kernels"], row["tc_kernels"], row["kernel_ns"], row["tc_ns"]) == (4, 1, 120 + 2 * i, 70)
        assert row["memory_ns"] == 25
        assert row["devices"] == 1
        assert row["average_ns"] == row["total_ns"] == 145 + 2 * i
        assert row["average_share"] == pytest.approx(100 * (145 + 2 * i) / row["duration"])
        assert row["aggregated"] is True
    found = client.json("/api/iterations", limit=2, offset=1)
    assert [row[2] for row in found["rows"]] == [1, 2]
    assert (found["total"], found["first"], found["last"]) == (STEPS, 0, STEPS - 1)
    assert found["longest"] == max(row["duration"] for row in rows)


def test_operators_of_an_iteration(client):
    rows = client.table("/api/iterations/3/operators")
    keys = ("kernels", "copies", "tc_kernels", "gpu", "tc")
    assert {row["type"]: tuple(row[key] for key in keys) for row in rows} == {
        "mm": (2, 0, 1, 103, 70), "relu": (1, 0, 0, 12, 0), "tanh": (1, 0, 0, 11, 0),
        "unassociated_cudaLaunchKernel": (0, 1, 0, 25, 0),
    }  # fmt: skip
    whole = client.table("/api/iterations")[3]
    for key, of in (("kernels",) * 2, ("tc_kernels",) * 2, ("gpu", "total_ns"), ("tc", "tc_ns")):
        assert sum(row[key] for row in rows) == whole[of]
    launches = client.json("/api/launches", iteration=3, operator=rows[0]["operator"])
    assert launches["total"] == rows[0]["kernels"]
    client.json("/api/iterations/99/operators", 422)


def test_key_operators(client):
    found = client.json("/api/key_operators")
    assert {row["type"] for row in found["rows"]} == {"mm", "relu", "tanh"}
    assert all(row["per_step"] and row["calls"] == STEPS and row["per_iteration"] == 1 for row in found["rows"])
    assert client.json("/api/key_operators", search="relu")["filtered"] == 1


# --- events


def test_events_of_a_small_recording_are_a_table(client, prof):
    rows = client.table("/api/launches", limit=1000)
    wanted = prof.report("iteration")
    assert [row["dur"] for row in rows] == wanted["dur"].tolist()
    assert [row["iteration"] for row in rows] == wanted["iteration"].tolist()
    assert [row["name"] for row in rows] == wanted["name"].tolist()
    assert [row["launch"] for row in rows] == wanted["launch"].tolist()
    used = wanted["uses_tc"].astype(object).where(wanted["uses_tc"].notna(), None).tolist()
    assert [row["uses_tc"] for row in rows] == used
    kernels = [row for row in rows if row["kind"] == "kernel"]
    assert {row["grid"] for row in kernels} >= {"40, 1, 1", "200, 1, 1"}
    found = client.json("/api/launches", iteration=2, sort="-dur")
    assert found["paged"]
    assert found["total"] == 5


@pytest.fixture
def many(monkeypatch):
    """As if a few events were too many for a table."""
    from pyprof.views import events

    monkeypatch.setattr(events, "MOST_ROWS", 4)


DURATIONS = sorted(d for i in range(STEPS) for d in (70, 30 + i, 12, 8 + i, 25))


def pages(client, **parameters):
    rows, cursor = [], None
    while True:
        found = client.json("/api/launches", **{"limit": 10} | parameters, **({"cursor": cursor} if cursor else {}))
        assert not found["paged"]
        keys = [column["key"] for column in found["columns"]]
        rows += [dict(zip(keys, row)) for row in found["rows"]]
        cursor = found["next"]
        if cursor is None:
            return rows


@pytest.mark.parametrize("sort", ["id", "-id", "start", "-start", "dur", "-dur", None])
def test_many_events_follow_a_cursor(made, many, sort):
    with serving(made) as client:
        rows = pages(client, **({"sort": sort} if sort else {}))
        key = (sort or "id").removeprefix("-")
        values = [row[key] for row in rows]
        assert values == sorted(values, reverse=(sort or "").startswith("-"))
        assert len({row["id"] for row in rows}) == 5 * STEPS
        assert sorted(row["dur"] for row in rows) == DURATIONS


def test_the_longest_of_many_events(tmp_path, many, monkeypatch):
    """Of all iterations, and of a part of them; 16 events are read at a time."""
    from pyprof.facts.steps.aggregation import aggregate
    from pyprof.store import packed
    from pyprof.store.files import Store

    monkeypatch.setattr(packed, "MOST_ROWS", 16)
    path = tmp_path / "net_dldb.sqlite"
    profiles.load(write_capture(tmp_path / "net.sqlite", steps(40))).save(path)
    with Store(path) as store:
        number = aggregate(store, 3, 36, None).id
    every = [(d, 5 * i + n) for i in range(40) for n, d in enumerate((70, 30 + i, 12, 8 + i, 25))]
    few = (
        ([], lambda dur, kind: True),
        (["kind:kernel"], lambda dur, kind: kind < 4),
        (["kernel:volta_sgemm"], lambda dur, kind: kind == 1),
        (["type:mm", "kernel:h884"], lambda dur, kind: kind == 0),
        (["dur:>=60"], lambda dur, kind: dur >= 60),
        (["dur:<10", "kind:kernel"], lambda dur, kind: kind < 4 and dur < 10),
        (["dur:26..29"], lambda dur, kind: 26 <= dur <= 29),
        (["dur:>25", "stream:7"], lambda dur, kind: kind != 1 and dur > 25),
        (["dur:>1s"], lambda dur, kind: False),
        (["dur:7"], lambda dur, kind: "7" in str(dur)),
        (["dur:2", "kernel:volta"], lambda dur, kind: "2" in str(dur) and kind < 2),
        (["kernel:?"], lambda dur, kind: False),
        (["kernel:!?", "kind:!?", "dur:!?"], lambda dur, kind: True),
        (["kind:?"], lambda dur, kind: False),
    )
    with serving(path) as client:
        for aggregation, inside in ((1, every), (number, every[15:185])):
            for sort, key in (
                ("-dur", lambda one: (-one[0], one[1])), ("dur", lambda one: one), ("id", lambda one: one[1]),
                ("-id", lambda one: -one[1]),
            ):  # fmt: skip
                for filters, kept in few:
                    rows = pages(client, sort=sort, filter=filters, aggregation=aggregation, limit=60)
                    wanted = sorted((one for one in inside if kept(one[0], one[1] % 5)), key=key)
                    assert [row["id"] for row in rows] == [place for _, place in wanted], (sort, filters)


# The conditions of test_reports.test_filters, by the dictionary and in SQL.
@pytest.mark.parametrize(
    ("filters", "search", "count"),
    [
        (["dur:>33"], "", STEPS + 2), (["dur:<0.012us"], "", 4), (["dur:8..10"], "", 3), (["dur:70"], "", STEPS),
        (["uses_tc:1"], "", STEPS), (["kernel:VOLTA"], "", 2 * STEPS), (["kernel:=volta_sgemm_128x64_nn"], "", STEPS),
        (["kernel:=volta_sgemm"], "", 0), (["kind:memcpy"], "", STEPS), (["name:mm", "dur:>=30"], "", 2 * STEPS),
        (["device:?"], "", 0), (["device:!?"], "", 5 * STEPS), ([], "volta", 2 * STEPS), ([], "tanh", STEPS),
    ],
)  # fmt: skip
def test_filters_of_many_events(made, many, filters, search, count):
    with serving(made) as client:
        assert len(pages(client, filter=filters, search=search)) == count
        found = client.json("/api/launches", filter=filters, search=search)
        assert (found["total"], found["filtered"]) == (5 * STEPS, count)


def test_many_events_refuse_other_orders(made, many):
    with serving(made) as client:
        assert client.json("/api/launches", 422, sort="kernel")["parameter"] == "sort"
        assert client.json("/api/launches", 422, filter="launch_dur:>1")["parameter"] == "filter"
        assert client.json("/api/launches", 422, cursor="x")["parameter"] == "cursor"


# --- details


def test_details_of_an_operator(client, prof):
    row = next(row for row in client.table("/api/reports/detail") if row["type"] == "mm")
    found = client.json(f"/api/details/op/{row['op_id']}")
    figures = {one["key"]: one["value"] for one in found["figures"]}
    for key in (
        "calls",
        "gpu",
        "gpu_avg",
        "gpu_min",
        "gpu_max",
        "cpu",
        "idle",
        "overhead",
        "kernels",
        "tc_kernels",
        "tc",
    ):
        assert figures[key] == row[key], key
    assert [(frame["file"], frame["line"]) for frame in found["stack"]] == [("net.py", 1), ("run.py", 9)]
    (kernels,) = found["tables"]
    assert [(cells[1], cells[2]) for cells in kernels["rows"]] == [
        (STEPS, TC),
        (STEPS, sum(30 + i for i in range(STEPS))),
    ]
    flops = 2 * 64 * 32 * 16 * STEPS  # of the first kernel of each execution
    assert found["roofline"]["flops"] in (flops, 2 * flops)
    assert {text["key"] for text in found["texts"]} >= {"shapes", "module", "type"}


def test_details_of_a_backward_say_whether_its_forward_is_known(tmp_path):
    """Both run a node of number 4: aten::relu, announced with 4, creates the one, and not the other."""
    found = {}
    for node in ("ReluBackward0", "torch::autograd::CppNode<F>"):
        text = f"""
            aten::relu, seq = 4
                > 5 forward
            thread 2
            autograd::engine::evaluate_function: {node}, seq = 4
                {node}, seq = 4
                    > 5 backward
        """
        path = tmp_path / f"{len(node)}_dldb.sqlite"
        profiles.load(write_capture(tmp_path / f"{len(node)}.sqlite", recording(text))).save(path)
        with serving(path) as client:
            row = next(r for r in client.table("/api/reports/detail") if r["direction"] == "bprop")
            details = client.json(f"/api/details/op/{quote(row['op_id'], safe='')}")
        texts = {one["key"]: one["value"] for one in details["texts"]}
        found[node] = [one["relation"] for one in details["partners"]], texts.get("forward", "")[:3]
    assert found == {"ReluBackward0": (["forward"], ""), "torch::autograd::CppNode<F>": ([], "na:")}


def test_details_of_a_kernel_and_a_launch(client):
    kernel = client.json(f"/api/details/kernel/{quote('volta_sgemm_128x64_nn')}")
    figures = {one["key"]: one["value"] for one in kernel["figures"]}
    total = sum(30 + i for i in range(STEPS))
    assert (figures["calls"], figures["kernel_gpu"], figures["gpu_min"], figures["gpu_max"]) == (
        STEPS,
        total,
        30,
        35,
    )
    assert figures["gpu_avg"] == total / STEPS
    event = client.table("/api/launches", filter="kernel:volta_sgemm")[2]
    found = client.json(f"/api/details/launch/{event['id']}")
    assert {one["key"]: one["value"] for one in found["figures"]}["dur"] == 32
    assert [partner["kind"] for partner in found["partners"]] == ["op", "kernel", "iteration"]
    assert found["partners"][1]["id"] == kernel["id"]
    for partner in found["partners"]:
        client.json(f"/api/details/{partner['kind']}/{quote(partner['id'], safe='')}")


def test_details_of_an_iteration_and_a_finding(client):
    found = client.json("/api/details/iteration/2")
    assert {one["key"]: one["value"] for one in found["figures"]}["kernel_ns"] == 124
    one = next(one for one in client.json("/api/insights")["expert"] if one["outcome"] == "found")
    assert client.json(f"/api/details/finding/{one['id']}")["title"] == one["problem"]
    for kind in ("op", "kernel", "launch", "iteration", "finding"):
        assert client.json(f"/api/details/{kind}/nothing", 404)["type"] == "missing"


def test_forward_and_backward_partner(data):
    with serving(data / "kineto" / "resnet50_v100_6steps.pt.trace.json.gz") as client:
        wait_until_open(client)
        row = next(r for r in client.table("/api/reports/detail", limit=1000) if r["direction"] == "bprop")
        found = client.json(f"/api/details/op/{row['op_id']}")
        (forward,) = [p for p in found["partners"] if p["relation"] == "forward"]
        back = client.json(f"/api/details/op/{forward['id']}")
        assert any(p["relation"] == "backward" for p in back["partners"])


def wait_until_open(client):
    def opened():
        found = client.http.get("/api/profile")
        assert found.status_code == 200 or found.json()["type"] == "opening", found.text
        return found.status_code == 200

    until(opened)


# --- roofline, memory, comparison


def test_roofline(client):
    found = client.json("/api/roofline")
    assert sum(point["time"] for point in found["points"]) == KERNELS
    assert [p["time"] for p in found["points"]] == sorted((p["time"] for p in found["points"]), reverse=True)
    for point in found["points"]:
        if point["flops"] and point["bytes"]:
            assert point["intensity"] == point["flops"] / point["bytes"]
    # The table has the same places, for kernels of one type.
    by_name: dict[str, list[dict[str, Any]]] = {}
    for point in found["points"]:
        by_name.setdefault(point["name"], []).append(point)
    table = client.json("/api/reports/kernel_summary", by="name")
    keys = [column["key"] for column in table["columns"]]
    for row in (dict(zip(keys, row)) for row in table["rows"]):
        same = by_name[row["name"]]
        if len(same) == 1:
            point = same[0]
            assert [row[key] for key in ("flops_per_s", "intensity")] == [
                point["achieved"],
                point["intensity"],
            ]
            assert row["bandwidth"] == pytest.approx(point["bandwidth"] / 1e9, rel=1e-12)
    assert client.json("/api/roofline", limit=1)["total"] == found["total"] == 4


def test_memory(tmp_path):
    # Given 100, 50, taken back 100: in use 100, 150, 50.
    events = [op("aten::empty", 0, 10), op("aten::empty", 20, 10), op("aten::add", 40, 10)]
    sizes = [(5, 100, 100, 1), (25, 50, 150, 2), (45, -100, 50, 1)]
    events += [event(time, size, address, total) for time, size, total, address in sizes]
    load(tmp_path, *events).save(tmp_path / "memory_dldb.sqlite")
    with serving(tmp_path / "memory_dldb.sqlite") as client:
        (curve,) = client.json("/api/memory")["curves"]
        assert curve["allocated"] == [100, 150, 50]
        assert (curve["peak"], curve["events"]) == (150, 3)
        assert curve["peak_time"] == curve["time"][1]
        (part,) = client.json("/api/memory", start=curve["time"][1])["curves"]
        assert part["allocated"] == [150, 50]
        assert client.json("/api/memory", end=curve["time"][0])["curves"] == []
        # The second is given, the first taken back; the operator around the first is out of it.
        rows = client.table("/api/memory/table", start=curve["time"][1], sort="-allocation_bytes")
        assert [(row["operator"], row["size_increase"]) for row in rows] == [
            ("aten::empty", 50),
            ("aten::add", -100),
        ]
        (given,) = client.table("/api/memory/table", show="allocations", end=curve["time"][1])
        assert (given["bytes"], given["released_ns"]) == (100, curve["time"][2])
        text = client.http.get("/api/memory/table/export", params={"format": "csv", "start": curve["time"][1]}).text
        assert [line.split(",")[2] for line in text.splitlines()[1:]] == ["aten::empty", "aten::add"]
        # In use at the peak, which is the second, and at the end.
        assert client.json("/api/memory/alive")["totals"]["bytes"]["all"] == 150
        for at, by, expected in (
            (None, "operator", [("empty", 150)]),
            (curve["time"][2], "operator", [("empty", 50)]),
            (curve["time"][2], "allocation", [("empty", 50)]),
            (curve["time"][0] - 1, "operator", []),
        ):
            asked = {"by": by} | ({} if at is None else {"at": at})
            rows = client.table("/api/memory/alive", **asked)
            assert [(row["operator"], row["bytes"]) for row in rows] == expected
        text = client.http.get("/api/memory/alive/export", params={"format": "csv", "at": curve["time"][2]}).text
        assert [line.split(",")[2:5] for line in text.splitlines()[1:]] == [["empty", "1", "50"]]
        assert client.http.get("/api/memory/alive", params={"by": "colour"}).status_code == 422


@given(st.lists(st.integers(-100, 100), min_size=1, max_size=300), st.integers(10, 50))
def test_thinned_curves_keep_their_extremes(values, points):
    found = np.array(values, np.int64)
    kept = downsample(found, points)
    assert len(kept) <= points + 2
    assert kept[0] == 0
    assert kept[-1] == len(values) - 1
    assert list(kept) == sorted(set(kept.tolist()))
    assert found[kept].max() == max(values)
    assert found[kept].min() == min(values)
    if len(values) <= points:
        assert len(kept) == len(values)


def test_the_headline_is_that_of_the_overview_on_a_terminal(client, prof):
    overview = figures(source(prof))
    text = client.json("/api/insights")["headline"]
    assert text == headline(overview.step, overview.best, late_rank(prof.source()))
    assert text.startswith("A step takes ")
    assert overview.best.problem in text


def test_compare_with_itself(client):
    found = client.json("/api/compare", base="", other="")
    assert all(one["delta"] in (0, None) and one["base"] == one["other"] for one in found["figures"])
    keys = [column["key"] for column in found["table"]["columns"]]
    rows = [dict(zip(keys, row)) for row in found["table"]["rows"]]
    assert {row["name"] for row in rows} >= {"mm", "relu", "tanh"}
    assert all(row["delta_device_ns"] == 0 for row in rows)
    assert found["steps"][0]["name"] == "step"
    assert all(one["delta"] in (0, None) and not one["share"] for one in found["steps"])


# --- recordings that lack something


def test_without_a_gpu(tmp_path):
    text = "".join(
        f"op seq={i} {MM}\n    op seq={i} aten::mm\n        wait {50 + i}\n"
        + (f"op {RELU}\n    wait 5\n" if i % 2 == 0 else "")
        for i in range(4)
    )
    path = tmp_path / "cpu_dldb.sqlite"
    profiles.load(write_capture(tmp_path / "cpu.sqlite", recording(text))).save(path)
    with serving(path) as client:
        found = client.json("/api/overview")
        assert client.json("/api/profile")["gpu"] is False
        assert found["tensor_cores"]["total"] is None
        assert all(part["value"] is None for part in found["gpu_utilization"]["parts"])
        assert {part["key"]: part["value"] is None for part in found["kernel_time"]["parts"]} == {
            "tc": True, "memory": True, "kernel": False
        }  # fmt: skip
        assert any("CPU" in note for note in found["notes"])
        own = profiles.load(path).report("detail")["gpu"].sum()
        assert sum(one["time"] for one in found["threads"]) == own
        assert [one["share"] for one in found["threads"]] == [100 * one["time"] / own for one in found["threads"]]
        assert not found["modules"]  # none was recorded
        assert not [one for one in client.json("/api/insights")["expert"] if "needs a GPU" in one["advice"]]
        for path_ in (
            "insights",
            "ledger",
            "step_time",
            "iterations",
            "launches",
            "roofline",
            "memory",
            "key_operators",
        ):
            client.json(f"/api/{path_}")
        assert client.json("/api/roofline")["ceilings"] == []
        one = client.json("/api/profile")["aggregations"][0]
        keys = client.json("/api/key_operators")["rows"]
        assert one["total"] == 4
        assert {row["type"]: (row["calls"], row["per_iteration"], row["per_step"]) for row in keys} == {
            "mm": (4, 1.0, True), "relu": (2, 0.5, False)
        }  # fmt: skip


def test_hostile_module(client):
    assert any(HOSTILE in (row["module"] or "") for row in client.table("/api/reports/detail"))


def test_what_is_missing_is_told_apart_from_what_was_repaired(copied):
    path = copied()
    with closing(sqlite3.connect(path)) as connection, connection:
        reasons = [("events without a start", 3), ("GPU events without a launch record (kept)", 2)]
        connection.executemany("insert into lost values (?, ?)", reasons)
    with serving(path) as client:
        notes = client.json("/api/overview")["notes"]
    assert notes[-1].startswith("3 records are missing")
    assert not any("incomplete" in note for note in notes)  # which changes no figure


def test_modules_that_differ_in_numbers_are_one_row(tmp_path):
    """Four layers, and a module of its own; the time of each is that of its kernels."""
    layers = [call("torch.mm", (8, 4), (4, 2), module=f"net.layers.{number}.up") for number in range(4)]
    text = "".join(f"{marker}\n    > {10 + number} gemm\n" for number, marker in enumerate(layers))
    text += f"{call('torch.relu', (8, 4), module='net.head1')}\n    > 7 relu_kernel\n"
    path = tmp_path / "net_dldb.sqlite"
    profiles.load(write_capture(tmp_path / "net.sqlite", recording(text))).save(path)
    with serving(path) as client:
        first, second = client.json("/api/overview")["modules"]
    assert (first["name"], first["count"], first["time"]) == ("net.layers.*.up", 4, 10 + 11 + 12 + 13)
    assert [(one["name"], one["time"]) for one in first["members"]] == [
        (f"net.layers.{number}.up", 10 + number) for number in (3, 2, 1, 0)
    ]
    assert first["share"] == pytest.approx(100 * 46 / 53)
    assert [one["share"] for one in first["members"]] == [pytest.approx(100 * (10 + n) / 53) for n in (3, 2, 1, 0)]
    assert (second["name"], second["count"], second["members"]) == ("net.head1", 1, [])


def test_the_phase_of_an_operator_is_in_the_overview(client):
    groups = client.json("/api/overview")["top"]["groups"]
    assert {one["phase"] for one in groups} <= {"forward", "backward", "recompute", "optimizer", None}
    assert {one["phase"] for one in groups if one["type"].endswith(".step")} <= {"optimizer"}
