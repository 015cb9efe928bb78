# SPDX-License-Identifier: Apache-2.0
"""Exports hold the rows that the table shows, all pages, with the profile's name."""

from __future__ import annotations

import csv
import io
import json
import re
import socket
import tempfile
import zipfile
from urllib.parse import unquote, urlsplit

import pandas as pd
import pyarrow as pa
import pytest

from pyprof.reports import Column, find
from pyprof.server import engine
from pyprof.server.event_routes import EVENTS, ITERATIONS, OPERATORS
from pyprof.views import column_table
from pyprof.views.column_table import Frame, arrow, stream
from pyprof.views.exports import of_outline, outline, sink
from tests.server.conftest import HOSTILE, STEPS, serving
from tests.server.test_reports import cells
from tests.waiting import until

FORMATS = ("csv", "json", "xlsx", "pdf", "md", "parquet")


def export(client, name="iteration", **parameters):
    found = client.http.get(f"/api/reports/{name}/export", params=parameters)
    assert found.status_code == 200, found.text
    return found


def sheet(data):
    """Rows of a workbook, without a library: texts are shared or inline strings."""
    with zipfile.ZipFile(io.BytesIO(data)) as book:
        xml = book.read("xl/worksheets/sheet1.xml").decode()
    assert "<f>" not in xml  # no formula
    rows = []
    for row in re.findall(r"<row .*?>(.*?)</row>", xml, re.S):
        rows.append(
            re.findall(r'<c r="([A-Z]+)\d+"[^>]*?(?:/>|>(?:<is><t[^>]*>(.*?)</t></is>|<v>(.*?)</v>)</c>)', row, re.S)
        )
    return rows


@pytest.mark.parametrize("format", FORMATS)
def test_the_name_of_the_file(client, format):
    found = export(client, "op_type", format=format)
    assert found.headers["content-disposition"].startswith(f'attachment; filename="net_op_type.{format}"')
    assert int(found.headers.get("content-length", len(found.content))) >= 0
    assert len(found.content) > 100


def test_csv_is_that_of_the_report(client, prof, tmp_path):
    from pyprof.render import writers

    stream = io.BytesIO()
    writers.render(find("detail"), prof.source(), "csv", stream)
    assert export(client, "detail", format="csv").content == stream.getvalue()
    rows = list(csv.reader(io.StringIO(export(client, format="csv").text)))
    assert all(not cell.startswith(("=", "@")) for row in rows for cell in row)


def test_json_and_parquet(client, prof):
    wanted = prof.report("iteration")
    found = export(client, format="json").json()["Iteration Report"]
    assert [list(row.values()) for row in found] == cells(wanted)
    table = pd.read_parquet(io.BytesIO(export(client, format="parquet").content))
    assert table["GPU Duration (ns)"].tolist() == wanted["dur"].tolist()


def test_markdown_has_a_title(client):
    text = export(client, "op_type", format="md").text
    assert text.startswith("# net: Op Type Summary Report\n\n| ")


def test_a_workbook(client, prof):
    rows = sheet(export(client, format="xlsx", sort="-dur").content)
    wanted = prof.report("iteration")
    assert len(rows) == len(wanted) + 1
    column = list(wanted).index("dur")
    letter = chr(ord("A") + column)
    found = [int({cell: value for cell, _, value in row}[letter]) for row in rows[1:]]
    assert found == sorted(wanted["dur"], reverse=True)


def test_a_page_to_print(client):
    from fpdf import __version__  # what made it

    data = export(client, format="pdf").content
    assert __version__
    assert data.startswith(b"%PDF-")
    assert data.rstrip().endswith(b"%%EOF")
    assert b"net" in data


@pytest.mark.parametrize("format", FORMATS)
def test_the_filters_hold(client, format):
    found = export(client, format=format, filter="kernel:volta", search="mm", sort="-dur")
    if format == "json":
        rows = found.json()["Iteration Report"]
        assert [row["GPU Duration (ns)"] for row in rows] == [70] * STEPS + [35, 34, 33, 32, 31, 30]
    if format == "csv":
        assert len(found.text.splitlines()) == 1 + 2 * STEPS
    if format == "parquet":
        assert len(pd.read_parquet(io.BytesIO(found.content))) == 2 * STEPS
    if format == "xlsx":
        assert len(sheet(found.content)) == 1 + 2 * STEPS


def test_options_hold(client):
    text = export(client, "kernel_summary", format="csv", by="properties").text
    assert "Grid" in text.splitlines()[0]
    assert client.json("/api/reports/detail/export", 422, format="csv", by="x")["type"] == "parameter"
    assert client.json("/api/reports/detail/export", 422, format="exe")["parameter"] == "format"
    assert client.json("/api/reports/detail/export", 422, format="csv", filter="x:1")["parameter"] == "filter"


def test_hostile_texts_in_every_format(client):
    assert HOSTILE in json.dumps(export(client, "detail", format="json").json())
    text = export(client, "detail", format="md").text
    assert text.count("<img") == text.count("\\<img") > 0
    assert b"onerror" not in export(client, "detail", format="xlsx").content  # compressed, and escaped inside
    assert export(client, "detail", format="pdf").content.startswith(b"%PDF-")


def test_a_hostile_name_of_the_profile(made, tmp_path):
    path = tmp_path / 'a"b\r\nX-Evil: 1\u00fc;_dldb.sqlite'
    path.write_bytes(made.read_bytes())
    with serving(path) as client:
        found = export(client, "op_type", format="csv")
        assert "x-evil" not in found.headers
        name = re.search(r"filename\*=UTF-8''(.*)", found.headers["content-disposition"])[1]
        assert unquote(name) == 'a"b\r\nX-Evil: 1\u00fc;_op_type.csv'


def test_an_export_longer_than_a_table(made, prof, monkeypatch):
    """A report of more rows than a table has is made anew, in parts, for its file; the table says that it is cut."""
    wanted = prof.report("iteration")
    monkeypatch.setattr(column_table, "MOST_ROWS", 4)
    from pyprof.server import child

    start = engine._START.replace("main()", "import pyprof.views.column_table as t; t.MOST_ROWS = 4; main()")
    monkeypatch.setattr(engine, "_START", start)
    assert child.main
    with serving(made) as client:
        found = client.json("/api/reports/iteration")
        assert not found["complete"]
        assert found["total"] == 4
        assert "export contains all" in found["note"]
        rows = export(client, format="json").json()["Iteration Report"]
        assert [list(row.values()) for row in rows] == cells(wanted)
        some = export(client, format="csv", filter="dur:>33").text.splitlines()
        assert len(some) == 1 + STEPS + 2


@pytest.mark.parametrize("path", ["launches", "iterations", "iterations/2/operators", "compare"])
@pytest.mark.parametrize("format", FORMATS)
def test_every_table_has_an_export(client, path, format):
    more = {"base": "", "other": ""} if path == "compare" else {}
    found = client.http.get(f"/api/{path}/export", params={"format": format, **more})
    assert found.status_code == 200
    assert re.match(r'attachment; filename="net_\w+\.' + format, found.headers["content-disposition"])
    if format == "json":
        table = client.json(f"/api/{path}", limit=1000, **more)
        (rows,) = found.json().values()
        assert [list(row.values()) for row in rows] == table.get("table", table)["rows"]


@pytest.mark.parametrize("path", ["launches", "iterations", "iterations/2/operators", "compare", "reports/detail"])
@pytest.mark.parametrize("search", ["no such text", "mm"])
def test_columns_without_a_text(client, path, search):
    """Of an operator nobody knows, and of no row at all."""
    more = {"base": "", "other": ""} if path == "compare" else {}
    found = client.http.get(f"/api/{path}/export", params={"format": "json", "search": search, **more})
    assert found.status_code == 200, found.text
    (rows,) = found.json().values()
    table = client.json(f"/api/{path}", limit=1000, search=search, **more)
    assert len(rows) == table.get("table", table)["filtered"]


def test_a_table_of_unknown_texts():
    column = Column("name", "Name", "", "A name.", str)
    for texts in ([None, None], []):
        frame = Frame(pa.table({"name": pa.array(texts, pa.string())}), [column])
        again = Frame(pa.ipc.open_stream(stream(arrow(frame.pandas(frame.select()), [column]))).read_all(), [column])
        assert again.cells(again.select()) == frame.cells(frame.select()) == [[text] for text in texts]


def test_a_part_of_the_launches(client):
    text = client.http.get(
        "/api/launches/export",
        params={"format": "csv", "iteration": 2, "sort": "-dur", "filter": "kernel:volta"},
    ).text
    rows = list(csv.DictReader(io.StringIO(text)))
    assert [row["GPU Time"] for row in rows] == ["70", "32"]
    assert client.json("/api/launches/export", 422, format="csv", filter="x:1")["parameter"] == "filter"


def test_more_launches_than_a_table_has(made, client, monkeypatch):
    from pyprof.views import events

    wanted = client.http.get("/api/launches/export", params={"format": "csv"}).text
    some = client.http.get("/api/launches/export", params={"format": "csv", "filter": "dur:>33"}).text
    monkeypatch.setattr(events, "MOST_ROWS", 4)
    start = engine._START.replace("main()", "import pyprof.views.events as e; e._PART = 7; main()")
    monkeypatch.setattr(engine, "_START", start)
    with serving(made) as many:
        assert many.http.get("/api/launches/export", params={"format": "csv"}).text == wanted
        assert many.http.get("/api/launches/export", params={"format": "csv", "filter": "dur:>33"}).text == some
        assert many.json("/api/launches/export", 422, format="csv", filter="launch_dur:>1")["parameter"] == "filter"


NEVER = (
    "import time; from pyprof.server.tasks import TASKS; TASKS._items['rows'] = lambda *a, **k: time.sleep(3600); "
    "main()"
)


@pytest.mark.long
def test_exports_that_nobody_waits_for(made, monkeypatch, tmp_path, children):
    """They take nothing from other requests while they run, and end with those who asked."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    with serving(made) as client:
        client.json("/api/reports/kernel")
        before, start = children(), engine._START
        monkeypatch.setattr(engine, "_START", start.replace("main()", NEVER))
        ask = f"GET /api/reports/kernel/export?format=pdf HTTP/1.1\r\nHost: {urlsplit(client.url).netloc}\r\n\r\n"
        asks = [socket.create_connection(("127.0.0.1", urlsplit(client.url).port)) for _ in range(40)]
        for one in asks:
            one.sendall(ask.encode())
        until(lambda: len(children() - before) == engine.EXPORTS)
        until(lambda: len(list(tmp_path.iterdir())) == 40)
        for path in ("overview", "launches", "iterations", "reports/kernel?sort=-dur"):
            client.json(f"/api/{path}")
        assert len(children() - before) == engine.EXPORTS
        for one in asks:
            one.close()
        until(lambda: not children() - before)
        until(lambda: not list(tmp_path.iterdir()))
        monkeypatch.setattr(engine, "_START", start)
        assert export(client, "kernel", format="pdf").content.startswith(b"%PDF-")
        assert client.json("/api/reports/op_type")  # a process that waits for reports is still there


def test_a_workbook_leaves_nothing_behind(tmp_path, monkeypatch):
    """Its parts are in the folder of the file, which goes with it when the process is killed."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "elsewhere"))
    (tmp_path / "elsewhere").mkdir()
    report = find("iteration")
    with open(tmp_path / "export", "wb") as file:
        writer = sink("xlsx", report, file, "net")
        assert list(tmp_path.glob("elsewhere/*")) == []
        assert len(list(tmp_path.iterdir())) > 2
        writer.close()
    assert {one.name for one in tmp_path.iterdir()} == {"elsewhere", "export"}


def test_tables_that_are_no_reports_are_outlined_in_full():
    for table in (EVENTS, ITERATIONS, OPERATORS, find("detail")):
        found = of_outline(json.loads(json.dumps(outline(table))))
        assert (found.columns, found.title, found.text) == (table.columns, table.title, table.text)
