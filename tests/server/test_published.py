# SPDX-License-Identifier: Apache-2.0
"""Published recordings: Python, the command line, a saved database and the page's server show the same figures."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from pyprof import profiles
from pyprof.metrics import METRICS
from tests import cli
from tests.reports.test_oracle import plain
from tests.server.conftest import Asking, serving

TABLES = ("summary", "detail", "op_type", "group_node", "kernel", "communication", "stragglers")


@pytest.fixture(
    scope="module",
    params=[
        "mi300_sglang_decode",
        pytest.param("mi300_vllm_prefilldecode_piecewise", marks=pytest.mark.long),
    ],
)
def imported(request: pytest.FixtureRequest, data: Path) -> profiles.Profile:
    return profiles.load(data / "kineto" / request.param)


@pytest.fixture(scope="module")
def saved(imported: profiles.Profile, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path: Path = tmp_path_factory.mktemp("published") / "run_dldb.sqlite"
    imported.save(path)
    return path


@pytest.fixture(scope="module")
def page(saved: Path) -> Iterator[Asking]:
    with serving(saved) as asking:
        yield asking


def test_metrics(imported, saved, page):
    window = imported.source().window
    computed = {name: metric.function(window) for name, metric in METRICS.items()}
    again = profiles.load(saved)
    assert computed == {name: metric.function(again.source().window) for name, metric in METRICS.items()}
    assert computed == {one["key"]: one["value"] for one in page.json("/api/overview")["figures"]}


@pytest.mark.parametrize("name", TABLES)
def test_reports(name, imported, saved, page, capfd):
    report = imported.report(name)
    assert cli.main(["report", name, str(saved), "--format=json"]) == 0
    printed = [list(row.values()) for row in next(iter(json.loads(capfd.readouterr().out).values()))]
    assert len(printed) == len(report)
    served = page.json(f"/api/reports/{name}", limit=1000)
    keys = [column["key"] for column in served["columns"]]
    expected = [[plain(value) for value in row] for row in report[keys].head(1000).itertuples(index=False)]
    assert served["rows"] == expected


def test_the_page_compares_a_recording_with_itself(page):
    difference = page.json("/api/compare", base="", other="")
    assert difference["figures"]
    assert all(one["delta"] in (0, None) and one["base"] == one["other"] for one in difference["figures"])
