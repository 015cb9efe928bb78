# SPDX-License-Identifier: Apache-2.0
"""Tables on a terminal: they fit its width, leave out what is empty, and scale units. Elsewhere nothing changes."""

from __future__ import annotations

import io
import sys
from pathlib import Path

import pytest
from rich.cells import cell_len

from pyprof import load
from pyprof.render import writers
from pyprof.render.fit import TextColumn, fit, lines, scaled
from pyprof.reports import every
from tests import cli

TRACE = Path(__file__).resolve().parents[2] / "examples" / "data" / "trace.pt.trace.json.gz"


@pytest.fixture(scope="module")
def prof():
    return load(TRACE)


def table(prof, report, width: int | None) -> str:
    out = io.BytesIO()
    writers.render(report, prof.source(), "table", out, width=width)
    return out.getvalue().decode()


@pytest.mark.parametrize("report", every(), ids=lambda one: one.name)
def test_every_report_fits(report, prof) -> None:
    for width in (60, 80, 120, 200) if report.name == "operator" else (60,):
        text = table(prof, report, width)
        assert max((cell_len(line) for line in text.splitlines()), default=0) <= width


@pytest.mark.parametrize(
    ("values", "unit", "wanted"),
    [
        ([5, 999], "ns", ("ns", ["5", "999"])),
        ([1_000, None, 2_500], "ns", ("µs", ["1", "", "2.5"])),
        ([2_000_000_000, 1_000], "ns", ("s", ["2", "1e-06"])),
        ([-3_000_000], "ns", ("ms", ["-3"])),
        ([0], "ns", ("ns", ["0"])),
        ([1_500_000], "B", ("MB", ["1.5"])),
        ([12_345], "count", ("count", ["12,345"])),
    ],
)
def test_the_unit_suits_the_largest_value(values, unit, wanted) -> None:
    assert scaled(values, unit) == wanted


def column(heading: str, text: str, numeric: bool) -> TextColumn:
    return TextColumn([heading], [text], numeric)


@pytest.mark.parametrize(
    ("width", "wanted"),
    [
        (200, ["name", "text", "n1", "n2", "n3", "n4", "n5", "n6", "n7"]),
        (24 + 14 + 5 * 12, ["name", "text", "n1", "n2", "n3", "n4", "n5"]),  # numbers beyond five go first
        (24 + 5 * 12, ["name", "n1", "n2", "n3", "n4", "n5"]),  # then texts
        (24 + 12, ["name", "n1"]),
    ],
)
def test_what_is_left_out_when_it_is_narrow(width: int, wanted: list[str]) -> None:
    numbers = [column(f"n{n}", "1234567890", True) for n in range(1, 8)]
    shown = [column("name", "x" * 40, False), column("text", "y" * 30, False), *numbers]
    found = fit(shown, width)
    assert [one.heading[0] for one in found] == wanted
    assert max(map(cell_len, lines(found))) <= width


def test_empty_columns_and_figures_are_not_shown(prof) -> None:
    reports = {report.name: report for report in every()}
    text = table(prof, reports["op_type"], 200)
    assert "GPU Idle" not in text
    assert "GPU Idle" in table(prof, reports["op_type"], None)
    text = table(prof, reports["summary"], 120)
    assert "Tensor Core Kernel Efficiency" not in text
    assert "figures have no value; --wide shows all." in text
    wall = prof.report("summary").set_index("name")["value"]["Wall Clock Time"]
    (line,) = [line for line in text.splitlines() if " Wall Clock Time " in line]
    assert line.split()[-2:] == [f"{wall / 1e6:.4g}", "ms"]


class Terminal(io.TextIOWrapper):
    def isatty(self) -> bool:
        return True


def test_only_a_terminal_gets_it(prof, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "a_dldb.sqlite"
    prof.save(path)
    monkeypatch.setenv("COLUMNS", "90")

    def printed(out: io.TextIOWrapper, *words: str) -> str:
        monkeypatch.setattr(sys, "stdout", out)
        assert cli.report(["op_type", str(path), *words]) == 0
        out.seek(0)
        return out.read()

    piped = printed(io.TextIOWrapper(io.BytesIO(), "utf-8"))
    assert max(map(cell_len, piped.splitlines())) > 90
    assert printed(Terminal(io.BytesIO(), "utf-8"), "--wide") == piped
    assert max(map(cell_len, printed(Terminal(io.BytesIO(), "utf-8")).splitlines())) <= 90
