# SPDX-License-Identifier: Apache-2.0
"""The figures of the overview as lines of text: at most 24, none wider than the terminal.

Names come from the recorded program and may be hostile: control and invisible characters are escaped. A text that
does not fit loses its middle.

>>> shorten("scaled_dot_product_attention", 15), shorten("encoder.layers.11.self_attn", 15, 0)
('scale…attention', '…s.11.self_attn')
"""

from __future__ import annotations

import re
import shlex
import textwrap
from collections.abc import Sequence
from typing import NamedTuple

from rich.cells import cell_len

from pyprof.core.terminal import visible
from pyprof.core.units import duration
from pyprof.facts.steps.source import Source
from pyprof.overview.figures import Figures, Row
from pyprof.reports import every, headline
from pyprof.reports.headline import OPPORTUNITY, PHASES, Best, Step
from pyprof.store import fleet_folder

MOST = 24
NOTHING = "Step na: nothing was recorded."
NARROW = 60
_PARTS = {
    "forward": "forward", "backward": "backward", "recompute": "recompute", "optimizer": "optimizer",
    "no_phase": "other operators", "dataloader": "data loading", "other": "outside operators",
}  # fmt: skip
_ON_GPU = {
    "no_phase": "other work", "data_loader": "data loading", "launch_bound": "launch-bound", "queued": "queued",
    "synchronization": "synchronization", "host_copy": "host copy", "not_recorded": "not recorded",
}  # fmt: skip
_LEAST = 1.0  # percent of a step: causes of idle time with less are added up
_TIMES, _CALLS = 80, 110  # widths that have room for these columns
_BETWEEN = 2  # columns
_FINDING = 4  # lines that a finding may have before rows of the table
_PATH = 44  # columns, of a path in a finding: with a few words it fits a line of `NARROW`
_FAILED = 5  # recordings of a fleet that were not read, and are named
_SPACE = "\xa0"  # non-breaking space


def lines(overview: Figures, width: int, encoding: str = "utf-8", path: str = "FILE") -> list[str]:
    """Return the overview of the recording `path`, for a terminal of `width` columns (60 at least)."""
    width = max(width, NARROW)
    if overview.verdict:
        return _flight(overview, width, encoding, path)
    cost = wrap(pauses(overview), width, 2)
    fixed = [ledger(overview, width), *cost, *_next(overview, path, width, encoding)]
    step, rows = _step(overview, width), table(overview, width, encoding)
    advice = _advice(overview.best, width, 2, encoding)
    least = len(fixed) + len(step) + _FINDING + 2  # of the table the heading and a row at least
    for best in overview.more:
        text = short_paths(finding_text(overview, best, encoding), encoding)
        more = [*wrap(text, width, 2), *_advice(best, width, 1, encoding)]
        if least + len(advice) + len(more) > MOST:
            break
        advice += more
    known = len(fixed) + len(advice) + len(step)
    text = short_paths(finding_text(overview, overview.best, encoding), encoding)
    room = MOST - known - len(wrap(text, width, _FINDING))
    rows = rows[: max(room, min(2, MOST - 1 - known), 0)]
    finding = wrap(text, width, MOST - known - len(rows))
    blank = [""] if MOST - known - len(rows) - len(finding) >= 2 else []
    shares, ending = fixed[: 1 + len(cost)], fixed[1 + len(cost) :]
    return [*step, *blank, *rows, *blank, *shares, *finding, *advice, *ending]


def of_summary(source: Source, width: int, encoding: str, path: str) -> list[str]:
    """Return the overview of the summary `path` of a fleet: what a step takes and which rank is late, recordings that
    are missing, and the names of its reports."""
    failed, names = fleet_folder.failed(source.store), [one.name for one in every() if one.of_summary]
    texts = [headline.of_summary(source), *(f"Not read: {sentence}" for sentence in failed[:_FAILED])]
    if len(failed) > _FAILED:
        texts.append(f"{len(failed) - _FAILED} more recordings were not read.")
    texts.append(f"Reports: {', '.join(names)}. Next: pyprof view {shlex.quote(path)}")
    return [line for text in texts for line in wrap(visible(text, encoding), max(width, NARROW), MOST)]


def _flight(overview: Figures, width: int, encoding: str, path: str) -> list[str]:
    """Return the overview of a flight record: its verdict, complete if there is room, then the other steps."""
    step, ending = _step(overview, width), _next(overview, path, width, encoding)
    verdict = [line for text in overview.verdict for line in wrap(visible(text, encoding), width, 4)]
    verdict = verdict[: MOST - 1 - len(step) - len(ending)]
    room = MOST - 1 - len(step) - len(ending) - len(verdict)
    rows = table(overview, width, encoding)[:room] if room > 1 else []
    return [*verdict, "", *step, *rows, *ending]


def _step(overview: Figures, width: int) -> list[str]:
    step = overview.step
    if step.length is None:
        return [NOTHING]
    head = counted(step)
    if step.busy is not None:
        busy, idle = round_shares([step.busy, 100 - step.busy])
        head += f"; GPU busy {busy} %, idle {idle} %"
    used = wrap(step.used, width, 2) if step.used else []
    if step.busy is None:
        return [*wrap(head, width, 2), *used, *_parts(step.parts, width, "")]
    work = [part for part in step.parts if part[0] in PHASES]
    causes = sorted((part for part in step.parts if part[0] not in PHASES), key=lambda part: -part[1])
    small = sum(share for _, share in causes if share < _LEAST)
    causes = [part for part in causes if part[1] >= _LEAST] + [("other", small)] * (small >= 0.05)
    groups = [*_parts(work, width, "busy: "), *_parts(causes, width, "idle: ")]
    return [*wrap(head, width, 2), *used, *groups]


def _parts(parts: Sequence[tuple[str, float]], width: int, title: str) -> list[str]:
    """Return parts of a step with their shares, on at most two lines."""
    if not parts:
        return []
    texts = [
        f"{part_name(name, bool(title))} {number} %".replace(" ", _SPACE)
        for (name, _), number in zip(parts, round_shares([share for _, share in parts]))
    ]
    return wrap(title + ", ".join(texts), width, 2, "  ")


def part_name(part: str, on_gpu: bool) -> str:
    """Return a part of a step in words.

    >>> part_name("other", False), part_name("other", True)
    ('outside operators', 'other')
    """
    names = _PARTS | (_ON_GPU | {"other": "other"} if on_gpu else {})
    return names[part]


def counted(step: Step) -> str:
    """Return the length of a step and of how many it is the mean."""
    time = duration(step.length or 0)
    if step.number is None:
        return f"Whole recording {time} (no steps found)"
    of = f" of {step.whose}" if step.whose else ""
    return f"Step {time}, mean of {step.number} steps{of}" if step.number > 1 else f"Step {time}"


def round_shares(shares: Sequence[float]) -> list[str]:
    """Round shares to one decimal while keeping their sum: the largest remainders are rounded up.

    >>> round_shares([33.36, 33.36, 33.28])
    ['33.4', '33.3', '33.3']
    """
    tenths = [int(10 * share) for share in shares]
    missing = round(10 * sum(shares)) - sum(tenths)
    order = sorted(range(len(shares)), key=lambda i: tenths[i] - 10 * shares[i])
    for i in order[: max(missing, 0)]:
        tenths[i] += 1
    return [f"{number / 10:.1f}" for number in tenths]


class _Column(NamedTuple):
    """A heading and cells. `head`: for a text, the share of the kept characters before the gap; None for numbers, which
    are never shortened."""

    cells: list[str]
    head: float | None = None


def table(overview: Figures, width: int, encoding: str = "utf-8") -> list[str]:
    """Return operators and modules side by side: a line of headings, and five of each."""
    columns = [*_operators(overview, width), *_modules(overview, width)]
    height = max(len(column.cells) for column in columns)
    escaped = [
        column._replace(cells=[visible(cell, encoding) for cell in column.cells] + [""] * (height - len(column.cells)))
        for column in columns
    ]
    widths = _widths(escaped, width)
    for column, wide in zip(escaped, widths):
        if cell_len(column.cells[0]) > wide:
            column.cells[0] = column.cells[0].partition(" (")[0]  # the heading without "(own time)"
    out = []
    for row in range(height):
        cells = [_cell(column.cells[row], column.head, wide, encoding) for column, wide in zip(escaped, widths)]
        out.append((" " * _BETWEEN).join(cells).rstrip())
    return out


def count(calls: float | None) -> str:
    """Return the calls in a step, with one digit where not each step has the same number.

    >>> count(1200.0), count(2.5), count(0.04), count(None)
    ('1,200', '2.5', '<0.1', 'na')
    """
    if calls is None:
        return "na"
    if 0 < calls < 0.1:
        return "<0.1"
    return f"{calls:,.0f}" if abs(calls - round(calls)) < 0.05 else f"{calls:,.1f}"


def _operators(overview: Figures, width: int) -> list[_Column]:
    heading = "Kernel" if overview.kernels else "Operator"
    out = [
        _Column([heading, *(row.name for row in overview.operators)], 0.5),
        *_numbers(overview.operators, width),
    ]
    if width >= _CALLS:
        out.append(_Column(["Calls", *(count(row.calls) for row in overview.operators)]))
    return out if overview.kernels else [*out, _Column(["Line", *map(place, overview.operators)], 0.0)]


def _modules(overview: Figures, width: int) -> list[_Column]:
    if not overview.modules:
        return [_Column(["Module", "na: not recorded"], 0.0)]
    heading = "Module (own time)" if width >= _CALLS else "Module"
    return [
        _Column([heading, *(row.name or "(none)" for row in overview.modules)], 0.0),
        *_numbers(overview.modules, width),
    ]


def _numbers(rows: Sequence[Row], width: int) -> list[_Column]:
    out = [_Column(["Share", *("na" if row.share is None else f"{row.share:.1f} %" for row in rows)])]
    if width >= _TIMES:
        out.append(_Column(["Time", *(duration(row.time) for row in rows)]))
    return out


def place(row: Row) -> str:
    """Return file and line, and the number of other lines.

    >>> place(Row("mm", 1, None, 1, "/project/net.py:30", 2)), place(Row("mm", 1, None, 1))
    ('net.py:30 +2', 'na')
    """
    if row.line is None:
        return "na"
    return re.split(r"[/\\]", row.line)[-1] + (f" +{row.more}" if row.more else "")


def _widths(columns: Sequence[_Column], width: int) -> list[int]:
    """Return widths with which the columns fit; the widest text is reduced first."""
    texts = [i for i, column in enumerate(columns) if column.head is not None]
    out = [min(max(map(cell_len, column.cells)), width) for column in columns]
    while sum(out) + _BETWEEN * (len(out) - 1) > width:
        widest = max(texts, key=lambda i: out[i])
        out[widest] -= 1
    return out


def _cell(text: str, head: float | None, width: int, encoding: str) -> str:
    content = text if head is None else shorten(text, width, head, encoding)
    gap = " " * (width - cell_len(content))
    return gap + content if head is None else content + gap


def ledger(overview: Figures, width: int = 1000) -> str:
    """Return the shares of the time that are explained."""
    parts = [(name, _explained(part)) for name, part in overview.ledger]
    whole = f"Time with known {', '.join(f'{name} {part} %' for name, part in parts)}".replace("na %", "na")
    return whole if len(whole) <= width else f"Known %: {', '.join(' '.join(pair) for pair in parts)}"


def pauses(overview: Figures) -> str:
    """Return how much time the recording itself took, "" if that is little."""
    if overview.pauses is None or not overview.pauses.window:
        return ""
    time, window, number = overview.pauses
    of = f"{duration(time)} of {duration(window)} ({100 * time / window:.1f} %)"
    paused = "1 pause, which is" if number == 1 else f"{number:,} pauses, which are"
    return f"Recording took {of} in {paused} left out."


def _explained(part: float | None) -> str:
    """Format a share so that it is 0 or 100 only if it is exactly that.

    >>> [_explained(part) for part in (None, 0.0, 0.01, 12.34, 99.99, 100.0)]
    ['na', '0', '0.1', '12.3', '99.9', '100']
    """
    if part is None:
        return "na"
    return f"{part:.0f}" if part in (0, 100) else f"{min(max(part, 0.1), 99.9):.1f}"


def finding_text(overview: Figures, best: Best | None, encoding: str = "utf-8") -> str:
    """Return the sentence about a finding, and its saving."""
    if best is None:
        return f"Finding: none ({overview.evaluated} rules could be evaluated)."
    at_most = "up to " if best.kind == OPPORTUNITY else ""
    saves = "" if best.saving is None else f" (could save {at_most}{duration(best.saving)}{_per(overview)}"
    if saves:
        saves += ")" if best.share is None else f", {best.share:.1f} %)"
    return f"{best.kind}{saves}: {visible(best.problem, encoding)}"


def short_paths(text: str, encoding: str = "utf-8") -> str:
    """Cut off the beginning of long paths: their end, with the line, is worth the room.

    >>> short_paths("mostly in /home/user/experiments/vision/resnet50/train.py:33.")
    'mostly in …er/experiments/vision/resnet50/train.py:33.'
    """
    return re.sub(r"\S*/\S*", lambda word: shorten(word[0], _PATH, 0, encoding), text)


def _advice(best: Best | None, width: int, most: int, encoding: str) -> list[str]:
    """Return what to do about a finding, on at most so many lines."""
    advice = best.advice if best else ""
    return wrap(f"Advice: {visible(advice, encoding)}", width, most) if advice else []


def _per(overview: Figures) -> str:
    return " a step" if overview.step.number is not None else ""


def _next(overview: Figures, path: str, width: int, encoding: str) -> list[str]:
    """Return the command to run next."""
    texts = [f"Next: pyprof view {shlex.quote(path)}"]
    if overview.ranks is not None:
        other = path.replace(f".rank{overview.rank}.", f".rank{0 if overview.rank else 1}.")
        hint = f"; another one: pyprof report {shlex.quote(other)}" if other != path else "."
        texts.insert(0, f"This is rank {overview.rank} of {overview.ranks}{hint}")
    return [line for text in texts for line in wrap(visible(text, encoding), width, 2)]


def unbroken(text: str) -> str:
    """Return a text in which no line ends between a number and its unit."""
    return re.sub(r"(?<=\d) ", _SPACE, text)


def wrap(text: str, width: int, most: int, first: str = "", rest: str = "  ") -> list[str]:
    """Wrap a text to at most `most` lines; the remainder is cut off. `first`, `rest`: what the lines begin with.

    >>> wrap("It takes 87.7 % of it.", 13, 9)
    ['It takes', '  87.7 % of', '  it.']
    """
    text = unbroken(text)
    for characters in range(width, 0, -1):  # some characters are two columns wide
        wrapped = textwrap.wrap(
            text, characters, initial_indent=first, subsequent_indent=rest, max_lines=most, placeholder=" ...",
            break_on_hyphens=False,
        )  # fmt: skip
        if all(cell_len(line) <= width for line in wrapped):
            break
    return [line.replace(_SPACE, " ") for line in wrapped]


def shorten(text: str, width: int, head: float = 0.4, encoding: str = "utf-8") -> str:
    """Shorten a text to at most `width` columns: the part `head` of the kept characters is before the gap."""
    if cell_len(text) <= width:
        return text
    gap = "…" if "…".encode(encoding, "replace") != b"?" else ".."
    room = max(width - len(gap), 0)
    before = _fitting(text, int(head * room))
    after = _fitting(text[::-1], room - cell_len(before))[::-1]
    return f"{before}{gap}{after}"


def _fitting(text: str, width: int) -> str:
    """Return as much of the beginning as fits."""
    end = min(len(text), width)
    while cell_len(text[:end]) > width:
        end -= 1
    return text[:end]
