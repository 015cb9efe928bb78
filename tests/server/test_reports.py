# SPDX-License-Identifier: Apache-2.0
"""Tables of the API are the reports: every number, whatever the order, the filter and the page."""

from __future__ import annotations

import pandas as pd
import pytest

from pyprof.reports import every, find
from tests.server.conftest import STEPS

REPORTS = [one.name for one in every()]


def cells(frame: pd.DataFrame) -> list[list[object]]:
    """Rows as JSON would have them."""
    return [
        [None if cell is None or cell is pd.NA or cell != cell else cell for cell in row]
        for row in frame.astype(object).itertuples(index=False)
    ]


@pytest.mark.parametrize("name", REPORTS)
def test_every_report_has_the_same_numbers(client, prof, name):
    found = client.json(f"/api/reports/{name}", limit=1000)
    wanted = prof.report(name)
    assert [column["key"] for column in found["columns"]] == list(wanted)
    assert found["rows"] == cells(wanted)
    assert found["total"] == found["filtered"] == len(wanted)
    assert found["complete"]


@pytest.mark.parametrize(
    ("name", "option", "value"),
    [(one.name, option.name, value) for one in every() for option in one.options for value in option.choices],
)
def test_options(client, prof, name, option, value):
    found = client.json(f"/api/reports/{name}", **{option: value, "limit": 1000})
    wanted = prof.report(name, **{option: value})
    assert [column["key"] for column in found["columns"]] == list(wanted)
    assert found["rows"] == cells(wanted)


def test_the_list_of_reports(client):
    found = {one["name"]: one for one in client.json("/api/reports")}
    assert list(found) == REPORTS
    one = found["kernel_summary"]
    assert one["options"][0]["default"] == "name"
    assert found["operator"]["options"][0]["choices"]["stack"] == []
    assert [c["key"] for c in one["columns"]] == [c.key for c in find("kernel_summary").all_columns]
    assert {c["key"]: c["kind"] for c in one["columns"]}["tc"] == "bool"


@pytest.mark.parametrize("name", [one.name for one in every() if one.view.sums])
def test_totals_are_the_sums_of_what_is_known(client, prof, name):
    report = find(name)
    numbers = {column.key for column in report.all_columns if column.kind is int}
    assert set(report.view.sums.split()) <= numbers
    table = prof.report(name)
    totals = client.json(f"/api/reports/{name}", limit=10)["totals"]
    assert totals.keys() == set(report.view.sums.split()) & set(table)
    for key, total in totals.items():
        known = table[key].dropna()
        expected = int(known.sum()) if len(known) else None
        assert total == {"all": expected, "filtered": expected, "unknown": int(table[key].isna().sum())}


@pytest.mark.parametrize("name", ["operator", "detail", "kernel_summary"])
def test_columns_without_a_value_are_named(client, prof, name):
    table = prof.report(name)
    found = client.json(f"/api/reports/{name}", search="no row has this text")
    assert found["rows"] == []
    assert found["empty"] == [key for key in table if table[key].isna().all()]


def test_a_filter_leaves_the_total_of_all(client, prof):
    table = prof.report("detail")
    found = client.json("/api/reports/detail", filter="gpu:>100ns", limit=10)["totals"]["gpu"]
    assert found["all"] == int(table["gpu"].sum())
    assert found["filtered"] == int(table["gpu"][table["gpu"] > 100].sum())


def test_pages_follow_each_other(client, prof):
    wanted = cells(prof.report("iteration"))
    rows, offset = [], 0
    while True:
        found = client.json("/api/reports/iteration", limit=10, offset=offset)
        if not found["rows"]:
            break
        assert found["ids"] == list(range(offset, offset + len(found["rows"])))
        rows += found["rows"]
        offset += 10
    assert rows == wanted
    assert len(wanted) == 5 * STEPS


@pytest.mark.parametrize("key", ["dur", "name", "uses_tc", "grid_x", "kernel", "direction"])
@pytest.mark.parametrize("down", [False, True])
def test_sorting_is_that_of_pandas(client, prof, key, down):
    found = client.table("/api/reports/iteration", limit=1000, sort=("-" if down else "") + key)
    table = prof.report("iteration")
    table[key] = table[key].astype(object)
    known = table[table[key].notna()].sort_values(
        key,
        ascending=not down,
        kind="stable",
        key=lambda s: s.map(lambda v: v.casefold() if isinstance(v, str) else v),
    )
    wanted = [*known["start"], *table[table[key].isna()]["start"]]
    assert [row["start"] for row in found] == wanted


def test_sorting_by_two_columns(client, prof):
    found = client.table("/api/reports/iteration", limit=1000, sort="kernel,-dur")
    table = prof.report("iteration")
    order = table.assign(k=table["kernel"].astype(str).str.casefold()).sort_values(
        ["k", "dur"], ascending=[True, False]
    )
    assert [(row["kernel"], row["dur"]) for row in found] == list(zip(order["kernel"], order["dur"]))


# Durations are 70, 30..35, 12, 8..13 and 25, six each: what passes is counted by hand.
@pytest.mark.parametrize(
    ("filters", "count"),
    [
        (["dur:>33"], STEPS + 2),  # 70 in each step, 34, 35
        (["dur:>=33ns"], STEPS + 3),
        (["dur:<0.012us"], 4),  # 8, 9, 10, 11
        (["dur:<=12"], STEPS + 5),
        (["dur:=70"], STEPS),
        (["dur:8..10"], 3),
        (["dur:0.008..0.010us"], 3),
        (["dur:7"], STEPS),  # the digit 7: in 70
        (["uses_tc:1"], STEPS),
        (["kernel:VOLTA"], 2 * STEPS),
        (["kernel:VOLTA", "uses_tc:1"], STEPS),
        (["kernel:=volta_sgemm_128x64_nn"], STEPS),
        (["kernel:=volta_sgemm"], 0),
        (["grid_x:?"], STEPS),  # a copy has no grid
        (["grid_x:!?"], 4 * STEPS),
        (["grid_x:<50"], 3 * STEPS),  # 40 and twice 1, not the copy's unknown one
        (["iteration:=2"], 5),
    ],
)
def test_filters(client, filters, count):
    found = client.json("/api/reports/iteration", filter=filters, limit=1000)
    assert found["filtered"] == count == len(found["rows"])
    assert found["total"] == 5 * STEPS


def test_search_looks_into_every_column(client):
    assert client.json("/api/reports/iteration", search="volta")["filtered"] == 2 * STEPS
    assert client.json("/api/reports/iteration", search="<img")["filtered"] == STEPS
    assert client.json("/api/reports/iteration", search="nothing like it")["filtered"] == 0


def test_search_of_digits_ignores_separators(client, prof):
    table = prof.report("op_type")
    number = f"{int(table['cpu'].max()):,}"
    plain = number.replace(",", "")
    assert client.json("/api/reports/op_type", search=number) == client.json("/api/reports/op_type", search=plain)
    assert client.json("/api/reports/op_type", search=plain)["filtered"] >= 1


def test_one_worker(client, prof):
    found = client.json("/api/reports/detail", worker=0, limit=1000)
    assert found["rows"] == cells(prof.report("detail", worker=0))


@pytest.mark.parametrize(
    ("parameters", "parameter"),
    [
        ({"limit": 9}, "limit"), ({"limit": 1001}, "limit"), ({"offset": -1}, "offset"), ({"sort": "nothing"}, "sort"),
        ({"sort": "gpu;drop table event"}, "sort"), ({"filter": "gpu"}, "filter"), ({"filter": "gpu:>5kb"}, "filter"),
        ({"filter": "no:1"}, "filter"), ({"filter": "using_tc:2"}, "filter"), ({"filter": "gpu:>x"}, "filter"),
        ({"aggregation": 7}, "aggregation"), ({"worker": 9}, "worker"), ({"wat": 1}, "wat"), ({"run": "x"}, "run"),
        ({"search": "x" * 1001}, "search"), ({"filter": ["gpu:>1"] * 21}, "filter"),
    ],
)  # fmt: skip
def test_a_wrong_parameter_is_named(client, parameters, parameter):
    status = 404 if parameter == "run" else 422
    found = client.json("/api/reports/detail", status, **parameters)
    assert found["parameter"] == parameter
    assert found["status"] == status


def test_an_option_of_another_report(client):
    found = client.json("/api/reports/detail", 422, by="name")
    assert "takes no options" in found["detail"]
    assert "choose from" in client.json("/api/reports/kernel_summary", 422, by="x")["detail"]
    assert client.json("/api/reports/nothing", 404)["type"] == "missing"
