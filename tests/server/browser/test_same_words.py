# SPDX-License-Identifier: Apache-2.0
"""A word means one thing: parts, facts and columns with the same label, in whichever view, have the same share. What is
compared is what a reader sees, collected over all views: legends and tables of charts, sums and facts."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterator
from typing import Any

import pytest

from tests.server.browser.conftest import EXACT, Open, Page, read
from tests.server.browser.test_rendered_numbers import SCALE
from tests.server.browser.test_routes import VIEWS
from tests.server.conftest import Asking, serving

RESNET = "kineto/resnet50_v100_6steps.pt.trace.json.gz"
# Of these the parts are operators and kernels: the title says what of them it is.
OF_THINGS = {
    "Device Self Time",
    "Device Total Time",
    "Host Self Time",
    "Host Total Time",
    "Total Time",
    "Modules",
}
# Views without a table of rows, and those of what a recording may not have.
WITHOUT = ("help", "timeline", "compare", "overview", "summaries")
NOT_RECORDED = {"iterations", "operators?by=module", "workers?tab=communication", "workers?tab=stragglers"}
# Columns that say nothing without their table: what a row is, and whether all of it is a row.
OF_ROWS = ["Calls", "Total", "Count", "Total GPU Time", "Time"]
COLLECT = r"""(OF_ROWS) => {
  const out = [];
  const text = (node) => (node?.textContent ?? "").replace(/\s+/g, " ").trim();
  const plain = (label) => label.replace(/[▲▼]/g, "").replace(/ \((ns|µs|ms|s|%|B|[KMG]iB)\)$/, "").trim();
  const SCALE = { ns: 1, "µs": 1e3, ms: 1e6, s: 1e9, B: 1, KiB: 2 ** 10, MiB: 2 ** 20, GiB: 2 ** 30, "%": 1 };
  const amount = (said) => {
    const match = /^[<>≥]? ?([\d,.]+) (ns|µs|ms|s|B|KiB|MiB|GiB|%)$/.exec(said);
    const kind = match && (match[2] === "%" ? "%" : match[2].endsWith("B") ? "B" : "ns");
    return match ? [Number(match[1].replaceAll(",", "")) * SCALE[match[2]], kind] : null;
  };
  const add = (label, found, where) => found && out.push([plain(label), ...found, where]);
  for (const table of document.querySelectorAll("main table")) {
    const heads = [...(table.tHead?.rows[0]?.cells ?? [])].map(text);
    const name = table.caption ? text(table.caption) : (table.getAttribute("aria-label") ?? "");
    const rows = [...(table.tBodies[0]?.rows ?? [])].map((row) => [...row.cells].map(text));
    if (!table.closest("[data-table]")) {
      const at = heads.indexOf("Share");
      if (at > 0) for (const row of rows) add(row[0], amount(row[at] ?? ""), name);
      const sum = (column) => rows.reduce((all, row) => all + (amount(row[column] ?? "")?.[0] ?? 0), 0);
      if (heads[1] === "Total" && sum(1)) // a bar for each row: what a part has of them all
        for (let at = 2; at < heads.length; at++) add(heads[at], [(100 * sum(at)) / sum(1), "%"], name);
    } else if (rows.length === 1)
      heads.forEach((head, at) => /\(%\)/.test(head) && add(head, amount(`${rows[0][at]} %`), name));
    for (const cell of table.tFoot?.querySelectorAll("[data-total]") ?? []) {
      const of = cell.dataset.tip ?? "";
      const head = heads[cell.cellIndex];
      if (cell.dataset.percent && !of.includes("in all rows")) add(head, amount(cell.dataset.percent), name);
      const sum = amount(of.split("\n")[0]) ?? [Number(text(cell).replaceAll(",", "")), "count"];
      if (!OF_ROWS.includes(plain(head))) add(head, sum, name);
    }
  }
  for (const part of document.querySelectorAll("main [data-legend-part]"))
    for (const number of part.querySelectorAll(".num")) {
      const label = [...part.childNodes].filter((one) => one.nodeType === 3).map(text).join("");
      if (number.innerText.endsWith("%")) add(label, amount(text(number)), "legend");
    }
  for (const term of document.querySelectorAll("main dl dt"))
    add(text(term).replace(/ ?i$/, ""), amount(text(term.nextElementSibling)), "fact");
  return out;
}"""


# Of each table the rows: by column what is shown, exactly where the tip says so.
TABLES = f"""() => [...document.querySelectorAll("main [data-table] table")].map((table) => ({{
  name: table.closest("[data-table]").dataset.table,
  rows: [...table.tBodies[0].rows].map((row) => Object.fromEntries(
    [...row.cells].filter((cell) => cell.dataset.key).map((cell) => [cell.dataset.key, ({EXACT})(cell)]))),
}}))"""


@pytest.fixture(scope="module", params=["example", pytest.param("resnet", marks=pytest.mark.long)])
def server(request: pytest.FixtureRequest) -> Iterator[Asking]:
    if request.param == "example":
        yield request.getfixturevalue("example")
        return
    with serving(request.getfixturevalue("data") / RESNET) as asking:
        read(asking)
        yield asking


def every_view(page: Page) -> Iterator[str]:
    for view in VIEWS:
        name, _, query = view.partition("?")
        page.go(name, **dict([query.split("=")] if query else []))
        yield view


def equal(shown: str, value: Any) -> bool:
    """Whether a cell shows a value; texts are those of other tests."""
    if value is None:
        return shown in ("–", "na", "no source line", "outside of modules")
    if not isinstance(value, (int, float)) or isinstance(value, bool):
        return True
    said = re.match(r"(< )?(-?[\d,.]+)(?:[ \xa0](ns|µs|ms|s))?", shown)
    if not said:
        return False
    number = float(said[2].replace(",", "")) * SCALE[said[3] or "ns"]
    # Whole numbers are in the tip, rounded ones have two digits, times with their unit three.
    return number == pytest.approx(value, rel=0.006 if said[3] else 0.0006, abs=0.0051)


def different(rows: list[dict[str, str]], answer: list[dict[str, Any]]) -> set[str]:
    """The columns of a table that do not show the rows of an answer."""
    return {
        key
        for row, values in zip(rows, answer)
        for key, text in row.items()
        if key not in values or not equal(text, values[key])
    }


def test_every_table_shows_the_numbers_of_the_server_and_a_label_has_one_figure(opened: Open, server: Asking):
    page = opened(server)
    asked: list[str] = []
    page.tab.on("request", lambda request: asked.append(request.url))
    shown: dict[str, int] = {}
    tables: list[Any] = []
    found: dict[tuple[str, str], list[tuple[float, str, str]]] = defaultdict(list)
    for view in every_view(page):
        for label, value, unit, where in page.tab.evaluate(COLLECT, OF_ROWS):
            if where not in OF_THINGS:
                found[label, unit].append((value, view, where))
        answers = [server.http.get(url) for url in asked if "/api/" in url and "/api/timeline" not in url]
        bodies = [body.get("table", body) for one in answers if isinstance(body := one.json(), dict)]
        tables += [  # those of the views before, too: what is there is not asked for again
            [dict(zip([column["key"] for column in body["columns"]], row)) for row in body["rows"]]
            for body in bodies
            if "columns" in body and "rows" in body
        ]
        asked.clear()
        for table in page.tab.evaluate(TABLES):
            rows = [row for row in table["rows"] if row]
            if not rows:
                continue
            same = [answer for answer in tables if len(answer) == len(rows)]
            wrong = min((different(rows, answer) for answer in same), key=len, default={"no answer"})
            assert not wrong, (view, table["name"], rows[0])
            shown[view] = shown.get(view, 0) + len(rows)
    with_tables = {view for view in VIEWS if not view.startswith(WITHOUT)}
    assert {view for view in with_tables if not shown.get(view)} <= NOT_RECORDED
    views = {label: {view for _, view, _ in places} for label, places in found.items()}
    for label in (
        "Kernel",
        "DataLoader",
        "CPU",
        "CPU (DLProf)",
        "Not Using Tensor Cores",
        "Kernel Utilization",
    ):
        assert len(views[label, "%"]) > 1, label  # or nothing is compared
    several = {
        key: places
        for key, places in found.items()
        for values in [[value for value, _, _ in places]]
        # Times of bars have three digits, shares one decimal.
        if max(values) - min(values) > (0.25 if key[1] == "%" else 0.006 * max(values))
    }
    assert not several
