# SPDX-License-Identifier: Apache-2.0
"""The program on the terminal: tabs, each loaded when it is first shown, and the keys.

Reports are computed on the thread of a `Desk`, filters and orders on a thread of textual: keys never wait for them.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, ClassVar

from rich.text import Text
from textual import on, work
from textual.app import App, ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import VerticalScroll
from textual.screen import ModalScreen
from textual.widget import Widget
from textual.widgets import Footer, Input, Static, TabbedContent, TabPane, Tabs

from pyprof.core.errors import PyProfError
from pyprof.core.terminal import visible
from pyprof.facts.steps.coverage import missing
from pyprof.facts.steps.source import Source
from pyprof.overview.figures import figures
from pyprof.overview.lines import shorten
from pyprof.reports.headline import headline, late_rank
from pyprof.rules import Outcome
from pyprof.rules.evaluation import evaluate
from pyprof.top import cells, pages, sheets
from pyprof.top.desk import Desk
from pyprof.top.grid import Grid
from pyprof.top.sheets import Place, Sheet
from pyprof.views import details
from pyprof.views.addresses import address
from pyprof.views.findings import details_of

TABS = {
    "overview": "Overview", "findings": "Findings", "operators": "Operators", "kernels": "Kernels", "idle": "Idle",
    "lines": "Lines",
}  # fmt: skip
_NO_TABLE = "The overview has no table: 2 to 6 have."
_MAKE = {"op": details.operator, "kernel": details.kernel}


class Reading(ModalScreen[None]):
    """A text above the tabs, to be read and closed."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape,q,enter,question_mark", "dismiss", "Close"),
        Binding("o", "address", "Address"),
    ]
    DEFAULT_CSS = """
    Reading { align: center middle; }
    Reading > VerticalScroll { width: 100%; height: 1fr; padding: 0 1; scrollbar-size-vertical: 1; }
    Reading > VerticalScroll { background: $surface; }
    #note { height: auto; max-height: 6; padding: 0 1; }
    #reading { width: auto; min-width: 100%; height: auto; }
    """

    def __init__(self, make: Callable[[int], Text]):
        super().__init__()
        self._make = make

    def compose(self) -> ComposeResult:
        with VerticalScroll():
            yield Static(id="reading", markup=False)
        yield Static(id="note", markup=False)
        yield Footer(compact=True, show_command_palette=False)

    def on_mount(self) -> None:
        self.query_one(VerticalScroll).focus()

    def on_resize(self) -> None:
        width = self.app.size.width - 3
        content = self._make(width)
        content.no_wrap = False
        self.query_one("#reading", Static).update(content)
        self.query_one("#reading", Static).styles.width = width

    def action_address(self) -> None:
        top = self.app
        assert isinstance(top, Top)
        top.action_address()


class Top(App[None]):
    """`pyprof top`. `page`: address at which `pyprof view` runs."""

    ENABLE_COMMAND_PALETTE = False
    CSS = """
    Tabs { height: 2; }
    TabbedContent, ContentSwitcher, TabPane { height: 1fr; padding: 0; }
    Grid { height: 1fr; }
    #overview-text { height: auto; padding: 0 1; }
    #advice { height: 9; padding: 0 1; border-top: solid $primary; }
    #status { height: 1; padding: 0 1; }
    #status.long { height: auto; max-height: 6; }
    #filter { display: none; height: 1; border: none; padding: 0 1; }
    """
    BINDINGS: ClassVar[list[BindingType]] = [
        *(Binding(str(number), f"tab({name!r})", show=False) for number, name in enumerate(TABS, 1)),
        Binding("slash,ctrl+k", "filter", "Filter", key_display="/"),
        Binding("s", "sort", "Sort"),
        Binding("S", "turn", show=False),
        Binding("u", "unit", "Unit"),
        Binding("b", "group", "By"),
        Binding("o", "address", "Address"),
        Binding("question_mark", "help", "Help", key_display="?"),
        Binding("q", "quit", "Quit"),
        Binding("escape", "clear", show=False),
    ]

    def __init__(self, source: Source, path: str, page: str):
        super().__init__()
        self.animation_level = "none"
        self._source, self._path, self._page = source, path, page
        self._desk = Desk(source.store)
        self._sheets: dict[str, Sheet] = {}
        self._outcomes: list[Outcome] | None = None
        self._summary: pages.Summary | None = None
        self._scale = 0
        self._by = next(iter(sheets.OPERATORS))
        self.addresses: list[str] = []

    def compose(self) -> ComposeResult:
        yield Static(id="title", markup=False)
        with TabbedContent(initial="overview"):
            for number, (name, title) in enumerate(TABS.items(), 1):
                with TabPane(f"{number} {title}", id=name):
                    if name == "overview":
                        with VerticalScroll():
                            yield Static(id="overview-text", markup=False)
                    else:
                        yield Grid(f"{name}-table")
                    if name == "findings":
                        yield Static(id="advice", markup=False)
        yield Static(id="status", markup=False)
        yield Input(id="filter", placeholder="text, or KEY:CONDITION as in gpu:>5ms", compact=True)
        yield Footer(compact=True, show_command_palette=False)

    def on_mount(self) -> None:
        self.query_one(Tabs).can_focus = False  # keys are those of the table

    def on_unmount(self) -> None:
        self._desk.close()

    def on_resize(self) -> None:
        title = f"pyprof top {visible(self._path)}"
        self.query_one("#title", Static).update(Text(shorten(title, self.size.width, 0.3)))
        self._show_overview()

    # --- loading

    @property
    def tab(self) -> str:
        """Name of the tab in front."""
        return self.query_one(TabbedContent).active

    @property
    def grid(self) -> Grid | None:
        """The table of the tab in front."""
        return None if self.tab in ("", "overview") else self.query_one(f"#{self.tab}-table", Grid)

    @on(TabbedContent.TabActivated)
    def _opened(self) -> None:
        grid, tab = self.grid, self.tab
        focused: Widget = grid or self.query_one("#overview VerticalScroll")
        focused.focus()
        self._leave_filter()
        if grid is None:
            self._say("")
            if self._summary is None:
                self._load_overview()
        else:
            grid.scale = cells.SCALES[self._scale]
            self._load(tab)

    @work(group="overview", exclusive=True)
    async def _load_overview(self) -> None:
        self.query_one("#overview-text", Static).update(Text("Reading ..."))
        try:
            self._summary = await self._ask(self._overview)
        except PyProfError as error:
            self.query_one("#overview-text", Static).update(Text(visible(str(error))))
            return
        self._show_overview()

    def _overview(self) -> pages.Summary:
        source = self._source
        facts = figures(source, self._judged())
        return pages.Summary(facts, headline(facts.step, facts.best, late_rank(source)), missing(source.store))

    def _judged(self) -> list[Outcome]:
        """Return the outcomes of the rules, which two tabs show; on the desk's thread."""
        if self._outcomes is None:
            self._outcomes = evaluate(self._source)
        return self._outcomes

    def _show_overview(self) -> None:
        if self._summary is not None:
            text = pages.overview(self._summary, self.size.width - 4)
            self.query_one("#overview-text", Static).update(text)

    async def _ask(self, task: Callable[[], Any]) -> Any:
        return await asyncio.wrap_future(self._desk.ask(task))

    def _load(self, tab: str) -> None:
        """Show the sheet of a tab, once it is made."""
        name = self._by if tab == "operators" else tab
        grid = self.query_one(f"#{tab}-table", Grid)
        if name in self._sheets:
            grid.show(self._sheets[name])
        else:
            grid.show(None, "Reading ...")
            self._make(tab, name)

    @work(group="tables")
    async def _make(self, tab: str, name: str) -> None:
        if name == "findings":
            sheet = await self._sheet(tab, lambda: sheets.finding_sheet(self._source, self._judged()))
        else:
            make = sheets.OPERATORS.get(name) or sheets.SHEETS[name]
            sheet = await self._sheet(tab, lambda: make(self._source))
        if sheet is not None:
            self._sheets[name] = sheet
            if tab != "operators" or name == self._by:
                self.query_one(f"#{tab}-table", Grid).show(sheet)

    async def _sheet(self, tab: str, make: Callable[[], Sheet]) -> Sheet | None:
        try:
            sheet: Sheet = await self._ask(make)
        except PyProfError as error:
            self.query_one(f"#{tab}-table", Grid).show(None, visible(str(error)))
            return None
        return sheet

    # --- the line below the table

    def _say(self, text: str, whole: bool = False) -> None:
        """Say something on one line, or `whole` on several."""
        status = self.query_one("#status", Static)
        before = status.has_class("long")
        status.set_class(whole, "long")
        line = visible(text) if whole else shorten(visible(text), self.size.width - 2, 0.7)
        status.update(Text(line), layout=whole or before)

    @on(Grid.Moved)
    def _describe(self) -> None:
        """Say which rows are shown, and of a finding what to do."""
        grid = self.grid
        if grid is None or grid.sheet is None:
            self._say("")
            return
        sheet = grid.sheet
        state = sheet.state
        count = f"{len(state.rows):,} of {sheet.total:,} rows" if state.text else f"{sheet.total:,} rows"
        parts = [f"by {self._by}"] if self.tab == "operators" else []
        parts += [count, *([sheet.note] if sheet.note else []), *([f"/{state.text}"] if state.text else [])]
        if cells.SCALES[self._scale]:
            parts.append(f"times in {cells.SCALES[self._scale]}")
        self._say(", ".join(parts))
        if isinstance(sheet, sheets.FindingSheet):
            row = grid.row
            finding = None if row is None else sheet.insights.expert[row]
            text = Text()
            if finding is not None:
                text.append(f"{visible(finding.problem)}\n", pages.BOLD).append(visible(finding.advice))
            self.query_one("#advice", Static).update(text, layout=False)

    # --- keys

    def action_tab(self, name: str) -> None:
        self.query_one(TabbedContent).active = name

    def action_filter(self) -> None:
        grid = self.grid
        if grid is None or grid.sheet is None:
            self._say(_NO_TABLE if grid is None else "")
            return
        field = self.query_one("#filter", Input)
        field.display = True
        with field.prevent(Input.Changed):
            field.value = grid.sheet.state.text
        field.focus()

    @on(Input.Changed)
    def _typed(self, event: Input.Changed) -> None:
        if self.grid is not None and self.grid.sheet is not None:
            self._select(self.grid, event.value, self.grid.sheet.state.sort)

    @on(Input.Submitted)
    def _kept(self) -> None:
        self._leave_filter()
        self._describe()

    def _leave_filter(self) -> None:
        self.query_one("#filter", Input).display = False
        if self.grid is not None:
            self.grid.focus()

    def action_clear(self) -> None:
        """Remove the filter."""
        self._leave_filter()
        if self.grid is not None and self.grid.sheet is not None and self.grid.sheet.state.text:
            self._select(self.grid, "", self.grid.sheet.state.sort)

    @work(group="select", exclusive=True)
    async def _select(self, grid: Grid, text: str, sort: str, keep: int | None = None) -> None:
        """Filter and sort a table. `keep`: the row that the cursor stays at; by default it goes to the first."""
        sheet = grid.sheet
        if sheet is None:
            return
        try:
            state = await asyncio.to_thread(sheet.select, text, sort)
        except PyProfError as error:
            self._say(str(error))
            return
        sheet.state = state
        rows = state.rows.tolist()
        sheet.cursor = rows.index(keep) if keep in rows else 0
        if grid.sheet is sheet:
            grid.again()

    def action_sort(self) -> None:
        self._sort(lambda sheet: sheet.next_order())

    def action_turn(self) -> None:
        self._sort(lambda sheet: sheet.reversed_order())

    def _sort(self, order: Callable[[Sheet], str]) -> None:
        grid = self.grid
        if grid is not None and grid.sheet is not None:
            self._select(grid, grid.sheet.state.text, order(grid.sheet))

    @on(Grid.Unfolded)
    def _unfolded(self) -> None:
        grid = self.grid
        if grid is not None and grid.sheet is not None:
            state = grid.sheet.state
            self._select(grid, state.text, state.sort, grid.row)

    def action_unit(self) -> None:
        self._scale = (self._scale + 1) % len(cells.SCALES)
        if self.grid is not None:
            self.grid.scale = cells.SCALES[self._scale]
            self.grid.again()

    def action_group(self) -> None:
        """Show operators by the next property."""
        if self.tab == "operators":
            names = list(sheets.OPERATORS)
            self._by = names[(names.index(self._by) + 1) % len(names)]
            self._leave_filter()
            self._load("operators")
        else:
            self.action_tab("operators")

    def _place(self) -> Place | None:
        grid = self.grid
        if grid is None:
            return Place("overview", {})
        if grid.sheet is None or grid.row is None:
            return None
        return grid.sheet.place_of(grid.row)

    def action_address(self) -> None:
        """Show the address of the row on the page."""
        place = self._place()
        if place is not None:
            link = address(self._page, place.view, **place.parameters)
            if link not in self.addresses:
                self.addresses.append(link)
            if isinstance(self.screen, Reading):
                self.screen.query_one("#note", Static).update(Text(link))
            else:
                self._say(link, whole=True)

    def action_help(self) -> None:
        grid = self.grid
        keys = [] if grid is None or grid.sheet is None else list(grid.sheet.columns)
        self.push_screen(Reading(lambda width: pages.help_text(keys, width)))

    @on(Grid.Chosen)
    @work(group="details", exclusive=True)
    async def _details(self) -> None:
        grid = self.grid
        if grid is None or grid.sheet is None or grid.row is None:
            return
        sheet, row, scale = grid.sheet, grid.row, cells.SCALES[self._scale]
        place = sheet.place_of(row)
        try:
            if isinstance(sheet, sheets.FindingSheet):
                content = pages.of_details(details_of(sheet.insights, str(sheet.values(row)["rule"])), scale)
            elif place.item is not None:
                kind, id = place.item
                content = pages.of_details(await self._ask(lambda: _MAKE[kind](self._source, id)), scale)
            else:
                content = pages.of_row(
                    sheet.title(row), sheet.columns.values(), list(sheet.values(row).values()), scale
                )
        except PyProfError as error:
            self._say(str(error))
            return
        self.push_screen(Reading(lambda width: pages.page(content, width)))
