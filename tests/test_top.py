# SPDX-License-Identifier: Apache-2.0
"""`pyprof top`: what is on the screen is what the reports have, and every key does what the help says."""

from __future__ import annotations

import asyncio
import gzip
import os
import pty
import subprocess
import sys
import threading
import unicodedata
from collections.abc import Awaitable, Callable
from functools import cache
from pathlib import Path

import pytest
from rich.text import Text
from textual.pilot import Pilot
from textual.widgets import Input, Static

from pyprof import profiles
from pyprof.core.symbols import short_name
from pyprof.core.units import duration, percent
from pyprof.facts.steps.source import Source
from pyprof.overview.figures import figures
from pyprof.overview.lines import part_name, round_shares
from pyprof.reports import find
from pyprof.top import desk, pages, sheets
from pyprof.top.app import Top
from pyprof.top.cells import cell
from tests import build, cli
from tests.reports.conftest import CPU
from tests.test_hostile_texts import recording as hostile_recording

GPU = Path(__file__).parent / "traces/gpu"
ROUNDS = 4  # a key becomes an action, that a worker, and its result a message, which is drawn
EVIL = "[red]x[/red] [@click=app.quit]y \x1b[31m\u202e"


class Terminal:
    """The program on a terminal of tests."""

    def __init__(self, app: Top, pilot: Pilot[None]):
        self.app, self._pilot = app, pilot

    async def settled(self) -> str:
        """Return the screen once all work is done."""
        for _ in range(ROUNDS):
            await self._pilot.pause(0)
            await self._work()
        await self._pilot.pause(0)
        return self.screen

    async def _work(self) -> None:
        await asyncio.gather(*(worker.wait() for worker in self.app.workers), return_exceptions=True)

    @property
    def screen(self) -> str:
        return "\n".join(
            "".join(segment.text for segment in strip) for strip in self.app.screen._compositor.render_strips()
        )

    @property
    def reading(self) -> str:
        """The whole text of the details, without line breaks."""
        content = self.app.screen.query_one("#reading", Static).content
        assert isinstance(content, Text)
        return flat(content.plain)

    async def press(self, *keys: str) -> str:
        """Press keys one after another; return the screen afterwards."""
        for key in keys:
            self.app.simulate_key(key)
            for _ in range(1 if key in ("up", "down") else ROUNDS):
                await self._pilot.pause(0)
                await self._work()
        return await self.settled()

    async def type(self, text: str) -> str:
        """Filter the table by a text; return the screen afterwards."""
        await self.press("slash")
        self.app.query_one(Input).value = text
        return await self.press("enter")

    @property
    def rows(self) -> list[str]:
        """The rows of the table in view, without the headings."""
        grid = self.app.grid
        assert grid is not None
        return grid._lines(grid.scrollable_content_region.width)[1:]

    @property
    def columns(self) -> dict[str, list[str]]:
        """The whole cells of the rows in view by heading."""
        grid = self.app.grid
        assert grid is not None
        assert grid.sheet is not None
        rows = grid.sheet.state.rows[: len(self.rows)]
        shown = zip(grid.sheet.fields, grid.sheet.cells(rows, grid.scale))
        return {one.heading: texts for one, texts in shown}


@cache
def source_of(prof: profiles.Profile) -> Source:
    """What the program is told of a recording: tests that open it share what they have worked out."""
    return prof.source()


def drive(
    prof: profiles.Profile, steps: Callable[[Terminal], Awaitable[None]], size: tuple[int, int] = (120, 40)
) -> Top:
    """Start the program, and do some steps once the overview is there."""

    async def run() -> Top:
        app = Top(source_of(prof), str(prof.path), "http://localhost:8000")
        async with app.run_test(size=size) as pilot:
            terminal = Terminal(app, pilot)
            await terminal.settled()
            await steps(terminal)
        assert not [thread for thread in threading.enumerate() if thread.name == "pyprof-top"]
        return app

    return asyncio.run(run())


@pytest.fixture(scope="module")
def prof(tmp_path_factory: pytest.TempPathFactory) -> profiles.Profile:
    path = tmp_path_factory.mktemp("top") / "net.sqlite"
    path.write_bytes(gzip.decompress((GPU / "transformer_bf16.sqlite.gz").read_bytes()))
    return profiles.load(path)


def flat(text: str) -> str:
    """A text without its line breaks and double spaces."""
    return " ".join(text.split())


def test_the_overview_is_that_of_the_report(prof: profiles.Profile) -> None:
    facts = figures(prof.source())

    async def steps(terminal: Terminal) -> None:
        screen = flat(terminal.screen)
        assert f"A step takes {duration(facts.step.length)}, the mean of 2, not known to be steady." in screen
        assert facts.best is not None
        assert f"{facts.best.problem.partition('. ')[0]}." in screen
        shares = round_shares([share for _, share in facts.step.parts])
        for (name, _), share in zip(facts.step.parts, shares):
            assert f"{part_name(name, True)} {share} %" in screen
        for row in (*facts.operators, *facts.modules):
            assert f"{row.share:.1f} % {duration(row.time)}" in screen
        assert "Time with known operator 100 %, line 100 %, module 72.3 %" in screen
        (bar,) = [line.strip() for line in terminal.screen.splitlines() if line.strip().startswith("FFF")]
        assert bar.count("l") / len(bar) == pytest.approx(dict(facts.step.parts)["launch_bound"] / 100, abs=0.01)

    drive(prof, steps)


def test_every_part_of_a_step_has_a_letter_of_its_own() -> None:
    parts = {
        column.key.removesuffix("_ns")
        for column in find("step_time", categories="phase").columns
        if column.key.endswith("_ns") and column.key != "total_ns"
    }
    assert parts == pages._PARTS.keys()
    assert len({letter for letter, _ in pages._PARTS.values()}) == len(pages._PARTS)


# Keys one after the other, report, column of the names, columns of the screen with the report's.
TABLES = [
    ("3b", "detail", "name", {"Calls": "calls", "Device": "gpu", "Host": "cpu", "TC": "using_tc", "Bound": "bound"}),
    ("b", "op_type", "type", {"Calls": "calls", "Device": "gpu", "Host": "cpu", "TC": "tc", "Ops": "ops"}),
    ("b", "operator", "name", {"Calls": "calls", "Device": "device_self_ns", "TC": "tc_self"}),
    ("4", "kernel_summary", "name", {"Calls": "calls", "Total": "total_ns", "Mean": "mean_ns", "Bound": "bound"}),
    ("5", "idle", "cause", {"Total": "total_ns", "Share": "share", "Count": "count", "Longest": "longest_ns"}),
    ("6", "source_line", "line", {"Device": "device_self_ns", "Host": "host_self_ns", "Calls": "calls"}),
]  # fmt: skip


def test_the_figures_on_the_screen_are_those_of_the_report(prof: profiles.Profile) -> None:
    async def steps(terminal: Terminal) -> None:
        for keys, report, name, columns in TABLES:
            table = prof.report(report)
            sort = find(report).view.sort.lstrip("-")
            table = table.sort_values(sort, ascending=False, kind="stable").astype(object)
            table = table.where(table.notna(), None)
            described = {column.key: column for column in find(report).columns}
            names = [short_name(text) if report == "kernel_summary" else text or "(none)" for text in table[name]]
            screen = await terminal.press(*keys)
            rows = len(terminal.rows)
            assert rows == min(len(table), 34)
            for heading, texts in terminal.columns.items():
                if heading in columns:
                    column = described[columns[heading]]
                    unknown = "" if column.kind is str else "na"
                    values = table[column.key][:rows]
                    wanted = [unknown if value is None else cell(value, column.unit) for value in values]
                    assert texts == wanted, heading
            assert next(iter(terminal.columns.values())) == names[:rows]
            if (time := {"gpu", "device_self_ns", "total_ns"} & set(columns.values())) and report != "idle":
                (key,) = time
                first = percent(table[key].iloc[0] / table[key].sum())
                assert terminal.columns["Share"][0] == first
                assert f"{first}  " in terminal.rows[0]
            assert f"{len(table):,} rows" in screen

    drive(prof, steps)


def test_the_tree_unfolds_and_its_sums_are_those_of_the_groups(prof: profiles.Profile) -> None:
    groups = prof.report("group_node").set_index("name")

    async def steps(terminal: Terminal) -> None:
        await terminal.press("3")
        names = [row[2:].split("  ")[0] for row in terminal.rows]
        assert names[0] == "▾ /"
        assert duration(groups.loc["/", "gpu"]) in terminal.rows[0]
        assert "100.0 %" in terminal.rows[0]
        (place,) = (number for number, row in enumerate(terminal.rows) if "▸ blocks/" in row)
        before = len(terminal.rows)
        await terminal.press(*["down"] * place)
        assert terminal.rows[place].startswith(">   ▸ blocks/")
        await terminal.press("right")
        assert terminal.rows[place].startswith(">   ▾ blocks/")
        assert [row.split()[1] for row in terminal.rows[place + 1 : place + 5]] == ["0/", "1/", "2/", "3/"]
        for number in range(4):
            assert duration(groups.loc[f"blocks/{number}/", "gpu"]) in terminal.rows[place + 1 + number]
        await terminal.press("right", "down", "left")  # into the group, and back to it
        assert terminal.rows[place].startswith("> ")
        await terminal.press("left")
        assert terminal.rows[place].startswith(">   ▸ blocks/")
        assert len(terminal.rows) == before
        await terminal.press("left", "left")
        assert [row[2:5] for row in terminal.rows] == ["▸ /"]

    drive(prof, steps)


def test_a_filter_of_the_tree_keeps_what_is_above(prof: profiles.Profile) -> None:
    details = prof.report("detail")
    compute = details[details["bound"] == "compute"]

    async def steps(terminal: Terminal) -> None:
        await terminal.press("3")
        await terminal.type("bound:=compute")
        leaves = [row for row in terminal.rows if row.rstrip().endswith("compute")]
        assert len(leaves) == len(compute)
        assert terminal.rows[0].startswith("> ▾ /")
        await terminal.type("linear calls:<3")
        assert all("/" in row or "linear" in row for row in terminal.rows)
        await terminal.press("escape")
        assert "▸ blocks/" in "".join(terminal.rows)

    drive(prof, steps)


def test_filters_are_those_of_the_page(prof: profiles.Profile) -> None:
    table = prof.report("kernel_summary")
    many = table[(table["calls"] > 10) & table["name"].str.contains("nvjet")]

    async def steps(terminal: Terminal) -> None:
        await terminal.press("4")
        screen = await terminal.type("nvjet calls:>10")
        assert len(terminal.rows) == len(many) > 1
        assert f"{len(many)} of {len(table)} rows, /nvjet calls:>10" in screen
        before = terminal.rows
        await terminal.press("slash")
        terminal.app.query_one(Input).value = "calls:>x"
        screen = await terminal.settled()
        assert "expected a number" in flat(screen)
        assert terminal.rows == before  # the last rows that were asked for correctly
        await terminal.press("escape")
        assert len(terminal.rows) == min(len(table), 34)
        assert "No row passes the filter." in await terminal.type("no kernel has this name")
        await terminal.press("escape", "slash", "1", "q", "s")  # letters are text there
        assert terminal.app.query_one(Input).value == "1qs"
        assert terminal.app.tab == "kernels"
        await terminal.press("escape")
        await terminal.press("1")
        assert "has no table" in await terminal.press("slash")

    drive(prof, steps)


def test_s_sorts_by_the_next_column(prof: profiles.Profile) -> None:
    table = prof.report("kernel_summary")

    async def steps(terminal: Terminal) -> None:
        await terminal.press("4")
        assert "Total ▾" in await terminal.settled()
        assert "Mean ▾" in await terminal.press("s")
        assert terminal.columns["Mean"][0] == duration(table["mean_ns"].max())
        assert "Mean ▴" in await terminal.press("S")
        assert terminal.columns["Mean"][0] == duration(table["mean_ns"].min())
        await terminal.press("s", "s")
        assert "Bound ▴" in terminal.screen
        assert terminal.columns["Bound"] == sorted(terminal.columns["Bound"])

    drive(prof, steps)


def test_u_changes_the_unit_everywhere(prof: profiles.Profile) -> None:
    top = int(prof.report("kernel_summary")["total_ns"].max())

    async def steps(terminal: Terminal) -> None:
        await terminal.press("4")
        for unit, size in (("ms", 1e6), ("us", 1e3), ("ns", 1), ("s", 1e9)):
            screen = await terminal.press("u")
            text = f"{top / size:,.0f}" if top / size >= 1000 else f"{top / size:.4g}"
            assert terminal.columns["Total"][0] == f"{text} {unit}"
            assert f"times in {unit}" in screen
        await terminal.press("u")
        assert terminal.columns["Total"][0] == duration(top)
        await terminal.press("u", "6")
        assert terminal.columns["Device"][0].endswith(" ms")
        assert all(text.endswith(" ms") for text in terminal.columns["Host"])

    drive(prof, steps)


def test_findings_have_advice_evidence_and_an_address(prof: profiles.Profile) -> None:
    found = [outcome for outcome in prof.outcomes if outcome.finding]
    first = found[0].finding
    assert first is not None
    assert first.saving is not None

    async def steps(terminal: Terminal) -> None:
        screen = flat(await terminal.press("2"))
        assert terminal.columns["Rule"][: len(found)] == [outcome.rule.id for outcome in found]
        assert terminal.columns["Saves a step"][0] == duration(first.saving / 2)  # two steps
        assert terminal.columns["Share"][0] == percent(found[0].share / 100)
        assert first.problem in screen
        assert first.advice[:60] in screen
        assert "not evaluated" in screen
        screen = flat(await terminal.press("enter"))
        assert first.problem in screen
        assert first.advice in terminal.reading
        assert first.verify in terminal.reading
        assert "Evidence" in terminal.reading
        for key, value in first.evidence[0].items():
            assert cell(value, "ns" if key.endswith("_ns") else "") in terminal.reading
        assert "#/overview?d=finding%3AR05" in await terminal.press("o")
        await terminal.press("escape", "down")
        second = found[1].finding
        assert second is not None
        assert second.advice[:60] in flat(terminal.screen)

    assert drive(prof, steps).addresses == ["http://localhost:8000/#/overview?d=finding%3AR05"]


def test_enter_shows_details_and_o_the_address(prof: profiles.Profile) -> None:
    detail = prof.report("detail").set_index("op_id")
    line = prof.report("idle").iloc[0]

    async def steps(terminal: Terminal) -> None:
        await terminal.press("3", "b")
        await terminal.type("op_id:=LINEAR_1")
        screen = flat(await terminal.press("enter"))
        own = detail.loc["LINEAR_1"]
        assert f"GPU Time {duration(own['gpu'])}" in screen
        assert f"Roofline Efficiency {cell(own['efficiency'], '%')}" in screen
        assert f"Calls {own['calls']}" in screen
        assert f"Input Shapes {own['shapes']}" in terminal.reading
        assert "Kernels Kernel Name Calls GPU Time Min Max Using TC" in terminal.reading
        assert "d=op%3ALINEAR_1" in await terminal.press("o")
        await terminal.press("escape", "4")
        kernel = prof.report("kernel_summary").iloc[0]
        screen = flat(await terminal.press("enter"))
        assert f"GPU Time {duration(kernel['total_ns'])}" in screen
        assert "Operators" in screen
        await terminal.press("escape", "5")
        screen = flat(await terminal.press("enter"))
        assert f"Longest {duration(line['longest_ns'])}" in screen
        assert str(line["advice"])[:40] in screen
        assert str(line["stack"]).split("\n")[-1] in terminal.reading
        assert "#/gpus?idle.o.by=place&idle.f.cause=%3Dlaunch-bound" in await terminal.press("o")
        await terminal.press("q", "6", "o")
        await terminal.press("3", "b", "o", "b", "o", "b", "down", "o", "1", "o")

    links = drive(prof, steps).addresses
    assert [link.partition("#/")[2].partition("?")[0] for link in links] == [
        "overview" if number == 7 else view
        for number, view in enumerate(("operators", "gpus", "lines", "operators", "operators", "operators", "overview"))
    ]
    assert links[3].endswith("by=type&types.f.type=%3Dlinear")
    assert "operators.f.name=%3Daten%3A%3Acopy_" in links[4]


def test_help_lists_the_keys_and_the_columns(prof: profiles.Profile) -> None:
    async def steps(terminal: Terminal) -> None:
        await terminal.press("4")
        screen = flat(await terminal.press("question_mark"))
        for text in ("Quit.", "10..20us", "bound:!?", "blocks_per_sm"):
            assert text in screen
        await terminal.press("escape")
        assert "Total ▾" in terminal.screen

    drive(prof, steps)


@pytest.mark.parametrize("size", [(80, 24), (20, 5)])
def test_small_terminals_have_the_name_and_the_cursor(prof: profiles.Profile, size: tuple[int, int]) -> None:
    """Columns that do not fit are left out; nothing is wider than the terminal; the cursor is always in view."""

    async def steps(terminal: Terminal) -> None:
        for key in "123456":
            screen = await terminal.press(key)
            lines = screen.splitlines()
            assert len(lines) == size[1]
            assert {len(line) for line in lines} == {size[0]}
        await terminal.press("4", "end")
        if size[1] >= 10:
            assert any(line.startswith("> ") for line in terminal.screen.splitlines())
        await terminal.press("enter", "escape", "home", "question_mark", "escape")
        if size == (80, 24):
            assert "Calls" in terminal.screen
            assert "Share" in terminal.screen
            assert any(line.startswith("> multi_tensor_apply_kernel") for line in terminal.screen.splitlines())

    drive(prof, steps, size)


def test_without_color_nothing_is_lost(prof: profiles.Profile, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NO_COLOR", "1")

    async def steps(terminal: Terminal) -> None:
        assert terminal.app.no_color
        assert "FBBBBB" in terminal.screen
        await terminal.press("4", "down")
        assert [row[0] for row in terminal.rows[:3]] == [" ", ">", " "]

    drive(prof, steps)


def test_a_recording_of_a_cpu_says_what_it_lacks(tmp_path: Path) -> None:
    prof = profiles.load(build.write_capture(tmp_path / "cpu.sqlite", build.recording(CPU)))
    types = prof.report("op_type")

    async def steps(terminal: Terminal) -> None:
        assert flat(f"takes {duration(figures(prof.source()).step.length)}") in flat(terminal.screen)
        assert "kernel_summary has no rows: it needs kernels on a GPU." in await terminal.press("4")
        assert "idle has no rows: it needs a GPU." in await terminal.press("5")
        await terminal.press("3", "b", "b")
        assert "Device" not in terminal.columns
        largest = types.sort_values("cpu", ascending=False).iloc[0]
        assert terminal.columns["Type"][0] == largest["type"]
        assert terminal.columns["Host"][0] == duration(largest["cpu"])
        assert terminal.columns["Share"][0] == percent(largest["cpu"] / types["cpu"].sum())
        await terminal.press("6", "enter", "escape")

    drive(prof, steps)


def test_a_recording_without_steps_or_operators_opens(tmp_path: Path) -> None:
    what = build.Recording()
    what.launches.append(build.Launch(20, 30, 1))
    what.kernels.append(build.Kernel("lonely", 40, 90, 1))
    prof = profiles.load(build.write_capture(tmp_path / "net.sqlite", what))

    async def steps(terminal: Terminal) -> None:
        assert "The recording takes" in terminal.screen
        for keys in ("2", "3", "b", "b", "b", "4", "5", "6"):
            await terminal.press(keys)
            await terminal.press("enter", "escape", "s", "S", "o")
        await terminal.press("4")
        assert "lonely" in terminal.rows[0]
        assert terminal.columns["Total"] == ["50 ns"]

    drive(prof, steps)


def test_hostile_names_are_data(tmp_path: Path) -> None:
    """Escape sequences are shown as escapes, and what looks like markup is text: no color, no link, no action."""
    what = hostile_recording()
    start = 2000
    what.steps.append((2, start, start + 900))
    what.ranges.append(build.Range(f"layer:{EVIL}", start, start + 900))
    what.ops.append(build.Op(build.call(f"aten::{EVIL}", (4, 4), (4, 4)), start + 10, start + 100))
    what.launches.append(build.Launch(start + 20, start + 30, 9))
    what.kernels.append(build.Kernel(EVIL, start + 40, start + 400, 9))
    folder = tmp_path / "[red]\x1b[31m"
    folder.mkdir()
    prof = profiles.load(build.write_capture(folder / "net.sqlite", what))

    async def steps(terminal: Terminal) -> None:
        screens = [terminal.screen]
        for keys in ("2", "3", "b", "b", "b", "4", "5", "6"):
            screens += [await terminal.press(keys), await terminal.press("end", "enter", "o")]
            await terminal.press("escape")
        screens.append(await terminal.type("[red]\x1b"))
        bad = {c for c in "".join(screens) if unicodedata.category(c)[0] == "C" and c != "\n"}
        assert not bad
        assert sum("[red]x[/red]" in screen for screen in screens) >= 4
        await terminal.press("escape", "4", "home")
        row = next(line for line in terminal.screen.splitlines() if "[red]x[/red]" in line)
        assert "\\x1b[31m\\u202e" in row
        assert not any(
            segment.style.link or "@click" in segment.style.meta
            for strip in terminal.app.screen._compositor.render_strips()
            for segment in strip
            if segment.style and "[red]" in segment.text
        )

    app = drive(prof, steps)
    assert all(link.isprintable() and " " not in link for link in app.addresses)


def test_keys_do_not_wait_for_a_report(prof: profiles.Profile, monkeypatch: pytest.MonkeyPatch) -> None:
    """While a report is computed, tabs and keys go on; the program ends without waiting for the report."""
    begun, release = threading.Event(), threading.Event()
    kernels = sheets.kernels

    def slow(source: Source) -> sheets.Sheet:
        begun.set()
        release.wait(60)
        return kernels(source)

    monkeypatch.setitem(sheets.SHEETS, "kernels", slow)
    monkeypatch.setattr(desk, "_ENDING", 0.1)

    async def run() -> None:
        app = Top(prof.source(), "net.sqlite", "")
        async with app.run_test(size=(80, 24)) as pilot:
            terminal = Terminal(app, pilot)
            await terminal.settled()

            async def press(key: str) -> str:
                app.simulate_key(key)
                for _ in range(ROUNDS):
                    await pilot.pause(0)
                return terminal.screen

            await press("4")
            while not begun.is_set():
                await pilot.pause(0)
            assert "Reading ..." in await press("down")
            assert "A step takes" in await press("1")
            assert "Reading ..." in await press("5")
            assert "Keys" in await press("question_mark")
            await press("q")
            await press("q")

    asyncio.run(run())
    assert not release.is_set()
    release.set()
    for thread in threading.enumerate():
        if thread.name == "pyprof-top":
            thread.join()


def test_an_error_of_the_file_is_a_sentence(prof: profiles.Profile, monkeypatch: pytest.MonkeyPatch) -> None:
    def damaged(source: Source) -> sheets.Sheet:
        raise prof.database.damaged("a page of it is missing")

    monkeypatch.setitem(sheets.SHEETS, "lines", damaged)

    async def steps(terminal: Terminal) -> None:
        assert "a page of it is missing" in flat(await terminal.press("6"))
        await terminal.press("enter", "slash", "s", "S", "u", "o", "5")
        assert "launch-bound" in terminal.rows[0]

    drive(prof, steps)


# --- the command


def test_what_is_no_terminal_leads_to_the_report(prof: profiles.Profile, capfd: pytest.CaptureFixture[str]) -> None:
    assert cli.start("top", [str(prof.path)]) == 2
    captured = capfd.readouterr()
    assert captured.out == ""
    assert "needs a terminal; `pyprof report FILE`" in captured.err
    assert len(captured.err.splitlines()) == 1


def test_a_missing_package_is_said_in_a_sentence(
    prof: profiles.Profile, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    for stream in (sys.stdin, sys.stdout):
        monkeypatch.setattr(stream, "isatty", lambda: True, raising=False)
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    assert cli.start("top", [str(prof.path)]) == 1
    assert "pip install '.[tui]'" in capfd.readouterr().err


def test_the_command_on_a_terminal(prof: profiles.Profile) -> None:
    """On a real terminal: the overview, an address, the end; the address is printed after it."""
    ours, theirs = pty.openpty()
    environment = os.environ | {"TERM": "xterm-256color", "COLUMNS": "100", "LINES": "30"}
    with subprocess.Popen(
        [sys.executable, "-m", "pyprof", "top", str(prof.path)], stdin=theirs, stdout=theirs, stderr=theirs,
        cwd=Path(__file__).parents[1], env=environment,
    ) as program:  # fmt: skip
        os.close(theirs)
        seen = b""

        def until(text: bytes) -> None:
            nonlocal seen
            while text not in seen:
                try:
                    part = os.read(ours, 1 << 16)
                except OSError:  # the other end is closed
                    part = b""
                assert part, seen.decode(errors="replace")
                seen += part

        until(b"Time with known")
        os.write(ours, b"o")
        until(b"#/overview")
        seen = b""
        os.write(ours, b"q")
        until(b"http://localhost:8000/#/overview\r\n")
        assert program.wait() == 0
    os.close(ours)
