# SPDX-License-Identifier: Apache-2.0
"""The figures of the overview, and findings, as HTML for a notebook: `prof`, `prof.overview`, `prof.findings`.

Styles are in the elements, without scripts: a notebook keeps both only of what it trusts. Colors of text and background
are the notebook's, so that it may be light or dark. All texts of a recording are escaped.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from html import escape
from typing import Any

import pandas as pd

from pyprof.core.terminal import visible
from pyprof.core.units import duration
from pyprof.overview import lines
from pyprof.overview.figures import Figures, Row
from pyprof.reports.headline import Best, Step

# Those of the page in its light theme (frontend/src/style.css), which are told apart without red or green cones too.
_COLORS = {
    "forward": "#07bbfc", "backward": "#612481", "recompute": "#95736e", "optimizer": "#847cef", "no_phase": "#543e4f",
    "dataloader": "#eec26b", "data_loader": "#eec26b", "launch_bound": "#c05308", "queued": "#e1e4e8",
    "synchronization": "#774002", "host_copy": "#4e68be", "not_recorded": "#b3b8be",
}  # fmt: skip
_OTHER = "#c18ab7"
_FRAME = "border:1px solid #8885;border-radius:6px;padding:.6em .8em;margin:.2em 0;max-width:62em;line-height:1.45"
_LONGEST = 90  # characters of a name


class Overview:
    """Overview of a profile: text in a terminal, a table in a notebook. `figures` has its numbers."""

    def __init__(self, figures: Figures, path: str):
        self.figures, self.path = figures, path

    def __str__(self) -> str:
        return "\n".join(lines.lines(self.figures, 100, path=self.path))

    __repr__ = __str__

    def _repr_html_(self) -> str:
        one = self.figures
        unit = "Kernel" if one.kernels else "Operator"
        parts = [
            f'<div title="{_text(self.path)}"><b>{_text(os.path.basename(self.path))}</b></div>',
            *(f"<div>{_text(sentence)}</div>" for sentence in one.verdict),
            f"<div>{_text(_step(one.step))}</div>",
            _bar(one.step),
            '<div style="display:flex;flex-wrap:wrap;gap:0 2.5em">',
            _table(unit, one.operators, lines_too=not one.kernels),
            _table("Module (own time)", one.modules, calls=False)
            if one.modules
            else "<div>Module na: not recorded</div>",
            "</div>",
            *([f"<div>{_text(one.step.used)}</div>"] if one.step.used else []),
            *(_with_advice(one, best) for best in (one.best, *one.more)),
            f'<div style="opacity:.75">{_text(lines.ledger(one))}</div>',
            *([f'<div style="opacity:.75">{_text(lines.pauses(one))}</div>'] if one.pauses else []),
        ]
        return f'<div class="pyprof-overview" style="{_FRAME}">{"".join(parts)}</div>'


def _with_advice(figures: Figures, best: Best | None) -> str:
    advice = f'<div style="opacity:.75">Advice: {_text(best.advice)}</div>' if best and best.advice else ""
    return f"<div>{_text(lines.finding_text(figures, best))}</div>{advice}"


class Findings(pd.DataFrame):
    """Findings as a data frame; parts of it are plain data frames. In a notebook each is a paragraph."""

    @property
    def _constructor(self) -> type[pd.DataFrame]:
        return pd.DataFrame

    def _repr_html_(self) -> str:
        if self.empty:
            return f'<div class="pyprof-findings" style="{_FRAME}">No rule found anything.</div>'
        items = [_finding(row) for row in self.to_dict("records")]
        return f'<div class="pyprof-findings" style="{_FRAME}">{"".join(items)}</div>'


def _finding(row: dict[Any, Any]) -> str:
    saving = row["saving_ns"]
    saves = "" if pd.isna(saving) else f" Could save {duration(int(saving))} of the recorded time."
    checks = f'<div style="opacity:.75">{_text(row["verify"])}</div>' if row["verify"] else ""
    return (
        f'<div style="margin:.3em 0 .6em"><div><b>{_text(row["rule"])}</b> {_text(row["problem"])}{saves}</div>'
        f"<div>{_text(row['advice'])}</div>{checks}</div>"
    )


def _step(step: Step) -> str:
    if step.length is None:
        return "Step na: nothing was recorded."
    busy = "" if step.busy is None else f"; GPU busy {step.busy:.1f} %, idle {100 - step.busy:.1f} %"
    return lines.counted(step) + busy


def _bar(step: Step) -> str:
    """Return the parts of a step as a bar, and their names and shares below it."""
    if not step.parts:
        return ""
    shares = lines.round_shares([share for _, share in step.parts])
    names = [lines.part_name(name, step.busy is not None) for name, _ in step.parts]
    colors = [_COLORS.get(name, _OTHER) for name, _ in step.parts]
    pieces = "".join(
        f'<span style="flex:{share:.3f} 0 0;background:{color};border-right:1px solid #fff8" title="{name} {text} %">'
        "</span>"
        for (_, share), text, name, color in zip(step.parts, shares, names, colors)
    )
    legend = "".join(
        f'<span style="white-space:nowrap"><span style="display:inline-block;width:.7em;height:.7em;'
        f'background:{color}"></span> {name} {text} %</span>'
        for text, name, color in zip(shares, names, colors)
    )
    return (
        f'<div style="display:flex;height:1.1em;margin:.3em 0">{pieces}</div>'
        f'<div style="display:flex;flex-wrap:wrap;gap:0 1.2em;margin-bottom:.4em">{legend}</div>'
    )


def _table(heading: str, rows: Sequence[Row], lines_too: bool = False, calls: bool = True) -> str:
    """Return a table of operators, kernels or modules; `lines_too`: with the line of the program."""
    headings = [heading, "Share", "Time", *(["Calls"] if calls else []), *(["Line"] if lines_too else [])]
    body = "".join(
        _row(
            [
                row.name or "(none)",
                "na" if row.share is None else f"{row.share:.1f} %",
                duration(row.time),
                *([lines.count(row.calls)] if calls else []),
                *([lines.place(row)] if lines_too else []),
            ],
            "td",
        )
        for row in rows
    )
    return (
        f'<table style="border-collapse:collapse;margin:.2em 0"><thead>{_row(headings, "th")}</thead>'
        f"<tbody>{body}</tbody></table>"
    )


def _row(cells: Sequence[str], tag: str) -> str:
    """Return a row: numbers, which are in columns 1 to 3, are aligned to the right."""
    out = "".join(
        f'<{tag} style="text-align:{"right" if 1 <= column <= 3 else "left"};padding:0 .6em 0 0">{_text(cell)}</{tag}>'
        for column, cell in enumerate(cells)
    )
    return f"<tr>{out}</tr>"


def _text(text: object) -> str:
    """Return a text of a recording in one line: shortened, without invisible characters, escaped."""
    plain = visible(str(text))
    cut = plain if " " in plain else lines.shorten(plain, _LONGEST)
    return escape(lines.unbroken(cut))
