# SPDX-License-Identifier: Apache-2.0
"""A table of any length on a terminal: headings, then the rows in view, which alone are turned into text."""

from __future__ import annotations

from typing import ClassVar

from rich.segment import Segment
from rich.style import Style
from textual import events
from textual.binding import Binding, BindingType
from textual.geometry import Size
from textual.message import Message
from textual.scroll_view import ScrollView
from textual.strip import Strip

from pyprof.top import cells
from pyprof.top.sheets import Sheet, TreeSheet

_HEADINGS, _ROW, _CURSOR = Style(bold=True, underline=True), Style(), Style(reverse=True)
_MARK = 2  # columns, with the mark of the cursor


class Grid(ScrollView, can_focus=True):
    """Shows a `Sheet`; None while it is loaded."""

    DEFAULT_CSS = """
    Grid { overflow-x: hidden; overflow-y: scroll; scrollbar-size-vertical: 1; }
    """
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("up", "move(-1)", show=False),
        Binding("down", "move(1)", show=False),
        Binding("pageup", "leap(-1)", show=False),
        Binding("pagedown", "leap(1)", show=False),
        Binding("home", "ends(0)", show=False),
        Binding("end", "ends(1)", show=False),
        Binding("right", "unfold", show=False),
        Binding("left", "fold", show=False),
        Binding("enter", "chosen", "Details"),
    ]

    class Moved(Message):
        """The cursor is on another row."""

    class Chosen(Message):
        """Details of the row are wanted."""

    class Unfolded(Message):
        """A node of the tree was opened or closed."""

    def __init__(self, id: str):
        super().__init__(id=id)
        self.sheet: Sheet | None = None
        self.message = ""  # in the place of rows
        self.scale = ""
        self._drawn: tuple[object, list[str]] | None = None
        self._widths: tuple[object, list[int]] = (None, [])

    # --- what is shown

    def show(self, sheet: Sheet | None, message: str = "") -> None:
        """Show a sheet with its cursor, or a message."""
        self.sheet, self.message = sheet, message
        self._widths = (None, [])
        self.again()

    def again(self) -> None:
        """Draw again: rows, order or units have changed."""
        self._drawn = None
        rows = 0 if self.sheet is None else len(self.sheet.state.rows)
        self.virtual_size = Size(0, rows + 1)
        if self.sheet is not None:
            self.sheet.cursor = min(self.sheet.cursor, max(rows - 1, 0))
        self._follow()
        self.post_message(self.Moved())

    @property
    def row(self) -> int | None:
        """The row of the sheet at the cursor; None without rows."""
        sheet = self.sheet
        return None if sheet is None or not len(sheet.state.rows) else int(sheet.state.rows[sheet.cursor])

    def render_line(self, y: int) -> Strip:
        """Return a line of the screen."""
        width = self.scrollable_content_region.width
        lines = self._lines(width)
        text = lines[y] if y < len(lines) else ""
        style = _HEADINGS if y == 0 and self.sheet is not None else _ROW
        low = round(self.scroll_offset.y)
        if self.sheet is not None and self.row is not None and y == self.sheet.cursor - low + 1:
            style = _CURSOR
        base = self.rich_style
        return Strip([Segment(text, base + style)]).adjust_cell_length(width, base + style)

    def _lines(self, width: int) -> list[str]:
        """Return the lines in view."""
        sheet = self.sheet
        if sheet is None:
            return [self.message]
        low, room = round(self.scroll_offset.y), max(self.size.height - 1, 0)
        key = (id(sheet), low, room, width, self.scale, sheet.cursor)
        if self._drawn is not None and self._drawn[0] == key:
            return self._drawn[1]
        rows = sheet.state.rows[low : low + room]
        columns = self._columns(sheet, sheet.cells(rows, self.scale))
        arrangement = (id(sheet), width, self.scale, sheet.state.text)
        least = self._widths[1] if self._widths[0] == arrangement else []
        sizes = cells.widths(columns, width - _MARK, least)
        self._widths = (arrangement, sizes)
        out = ["  " + cells.line(columns, sizes, None)]
        for number in range(len(rows)):
            mark = "> " if low + number == sheet.cursor else "  "
            out.append(mark + cells.line(columns, sizes, number))
        if not len(rows):
            out.append(f"  {'No row passes the filter.' if sheet.total else sheet.nothing}")
        self._drawn = (key, out)
        return out

    def _columns(self, sheet: Sheet, texts: list[list[str]]) -> list[cells.Column]:
        sort = sheet.state.sort
        columns = []
        for one, column in zip(sheet.fields, texts):
            arrow = {one.key: " ▴", f"-{one.key}": " ▾"}.get(sort, "") if one.of is None else ""
            columns.append(cells.Column(one.heading + arrow, column, sheet.head(one)))
        return columns

    # --- the cursor

    def _to(self, place: int) -> None:
        sheet = self.sheet
        if sheet is None or not len(sheet.state.rows):
            return
        sheet.cursor = min(max(place, 0), len(sheet.state.rows) - 1)
        self._drawn = None
        self._follow()
        self.post_message(self.Moved())

    def _follow(self) -> None:
        """Scroll so that the cursor is in view."""
        place = 0 if self.sheet is None else self.sheet.cursor
        low, room = round(self.scroll_offset.y), max(self.size.height - 1, 1)
        if place < low:
            self.scroll_to(y=place, animate=False, force=True, immediate=True)
        elif place >= low + room:
            self.scroll_to(y=place - room + 1, animate=False, force=True, immediate=True)
        self.refresh()

    def on_resize(self, event: events.Resize) -> None:
        self._drawn = None
        self._follow()

    def on_click(self, event: events.Click) -> None:
        """Choose a row; twice: its details."""
        if event.y and self.sheet is not None:
            place = round(self.scroll_offset.y) + event.y - 1
            if place < len(self.sheet.state.rows):
                self._to(place)
                if event.chain == 2:
                    self.post_message(self.Chosen())

    def action_move(self, step: int) -> None:
        if self.sheet is not None:
            self._to(self.sheet.cursor + step)

    def action_leap(self, pages: int) -> None:
        self.action_move(pages * max(self.size.height - 2, 1))

    def action_ends(self, last: int) -> None:
        if self.sheet is not None:
            self._to(last * len(self.sheet.state.rows))

    def action_chosen(self) -> None:
        if self.row is not None:
            self.post_message(self.Chosen())

    def action_unfold(self) -> None:
        """Open the group, or go to the first row in it."""
        if isinstance(self.sheet, TreeSheet) and (row := self.row) is not None:
            if self.sheet.unfold(row, True):
                self.post_message(self.Unfolded())
            elif self.sheet.tree.inside[row]:
                self.action_move(1)

    def action_fold(self) -> None:
        """Close the group, or go to the group around the row."""
        if isinstance(self.sheet, TreeSheet) and (row := self.row) is not None:
            above = self.sheet.above(row)
            if self.sheet.unfold(row, False):
                self.post_message(self.Unfolded())
            elif above >= 0:
                self._to(self.sheet.state.rows.tolist().index(above))
