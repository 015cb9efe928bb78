# SPDX-License-Identifier: Apache-2.0
"""Writer of net.dict: rows of one kernel and site share a template, only numbers are filled in per row.

Templates with equally many numbers form a layout. Its rows are joined in Arrow: a constant piece of the template, a
number, the next piece ... No Python code runs per row.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from functools import cache
from itertools import chain, zip_longest
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from pyprof.core import arrow, intervals
from pyprof.core.marker import caller, is_event, with_call_id
from pyprof.core.model import BPROP, DIRECTIONS, FPROP, KINDS, OPERATOR, PHASES, Column, Ints, Rows
from pyprof.core.netdict.keys import KEYS
from pyprof.core.terminal import json_text

_BLOCK = 8192  # rows formatted at a time, to limit memory
_SLOT = "\0"  # placeholder of a number; it never appears unescaped in a literal or JSON


class _Style(NamedTuple):
    """Notation of the parts of a line."""

    text: Callable[[Any], str]  # constants
    none: str
    triple: str  # of grid and block


# JSON has an object per line: tuples become lists, None becomes null.
STYLES = {
    "dict": _Style(repr, "None", "(%d, %d, %d)"),
    "jsonl": _Style(json_text, "null", "[%d, %d, %d]"),
}


def lines(rows: Rows, style: str = "dict") -> Iterator[str]:
    """Yield the lines of net.dict, without line ends, in the order of the rows."""
    for block in _format(rows, STYLES[style]):
        for line in block.to_pylist():
            yield line[:-1]


def blocks(rows: Rows, style: str = "dict") -> Iterator[memoryview]:
    """Yield the same as UTF-8, many lines at a time, each with its end."""
    for block in _format(rows, STYLES[style]):
        yield arrow.joined(block)


class _Layout(NamedTuple):
    """Templates with equally many numbers. A piece is an array with an element per template, or a scalar if it is the
    same in all; the offsets of the sequence numbers have a row per template."""

    pieces: list[pa.Array | pa.Scalar]
    inner: int
    before: Ints
    after: Ints


def _format(rows: Rows, style: _Style) -> Iterator[pa.Array]:
    """Yield lines with their ends, block by block."""
    n_names, n_kinds = len(rows.names), len(KINDS)
    key = (rows.site.astype(np.int64) * n_names + rows.name) * n_kinds + rows.kind
    code, keys = arrow.factorize(key)
    templates = [
        _template(rows, k // n_kinds % n_names, k // n_kinds // n_names, k % n_kinds, style) for k in keys.tolist()
    ]
    layout, place, layouts = _layouts(templates)
    nothing = _constant("")
    for first in range(0, len(rows), _BLOCK):
        block = code[first : first + _BLOCK]
        order = np.argsort(layout[block], kind="stable")
        block = block[order]
        order += first
        duration, sub, *tail = _cells(rows, order, style)
        base = rows.seq.values[order]
        parts = []
        for number, members in intervals.groups(layout[block]):
            shape, span = layouts[number], slice(int(members[0]), int(members[-1]) + 1)
            at = place[block[span]]
            before, after = ([_decimal(base[span] + n) for n in side[at].T] for side in (shape.before, shape.after))
            inner = [_decimal(column.values[order[span]]) for column in rows.inner_calls[: shape.inner]]
            cells = (duration[span], *inner, *before, sub[span], *after, *(column[span] for column in tail))
            pieces = [p.take(arrow.array(at)) if isinstance(p, pa.Array) else p for p in shape.pieces]
            alternating = chain.from_iterable(zip_longest(pieces, cells))  # one more piece than cells
            parts.append(pc.binary_join_element_wise(*list(alternating)[:-1], nothing))
        back = np.empty(len(order), np.int64)
        back[order - first] = np.arange(len(order))
        yield pa.concat_arrays(parts).take(arrow.array(back))


def _layouts(templates: list[_Template]) -> tuple[Ints, Ints, list[_Layout]]:
    """Return the layout of each template and its index in it; and the layouts."""
    shapes: dict[tuple[int, ...], list[int]] = {}
    for i, template in enumerate(templates):
        shapes.setdefault((template.inner, *map(len, template.offsets)), []).append(i)
    layout, place = np.empty(len(templates), np.int16), np.empty(len(templates), np.int32)
    layouts = []
    for number, (shape, members) in enumerate(shapes.items()):
        layout[members], place[members] = number, np.arange(len(members))
        split = [templates[i].text.split(_SLOT) for i in members]
        pieces = [_constant(piece[0]) if len(set(piece)) == 1 else arrow.large_texts(piece) for piece in zip(*split)]
        before, after = (
            np.array([templates[i].offsets[side] for i in members], np.int64).reshape(len(members), shape[1 + side])
            for side in (0, 1)
        )
        layouts.append(_Layout(pieces, shape[0], before, after))
    return layout, place, layouts


def _constant(text: str) -> pa.Scalar:
    return arrow.large_texts([text])[0]


def _decimal(values: Ints) -> pa.Array:
    return pc.cast(arrow.array(values), pa.large_string())


def _cells(rows: Rows, order: Ints, style: _Style) -> list[pa.Array]:
    """Return the varying values of some rows as texts, in the order of their keys, without sequence numbers."""

    def column(values: Column | Ints, absent: str = style.none) -> pa.Array:
        if not isinstance(values, Column):
            return _decimal(values[order])
        out = _decimal(values.values[order])
        if values.present is None or (present := values.present[order]).all():
            return out
        return pc.if_else(arrow.truths(present), out, _constant(absent))

    def triple(values: Column) -> pa.Array:
        code, distinct = distinct_triples(values.values[order])
        texts = [style.triple % tuple(row) for row in distinct.tolist()] + [style.none]
        return arrow.large_texts(texts).take(arrow.array(np.where(values.mask()[order], code, len(distinct))))

    cpu = style.text("cpu") if (rows.kind[order] == OPERATOR).all() else style.none
    return [
        column(rows.duration), column(rows.sub), column(rows.tid), column(rows.device, cpu), column(rows.stream),
        triple(rows.grid), triple(rows.block), column(rows.start), column(rows.end), column(rows.launch_start),
        column(rows.launch_end), column(rows.correlation), column(rows.pid), column(rows.context),
        column(rows.registers), column(rows.shared_memory), column(rows.forward_thread), column(rows.graph),
        column(rows.call), column(rows.launcher),
    ]  # fmt: skip


def distinct_triples(values: Ints) -> tuple[Ints, Ints]:
    """Return a code per row of an (n, 3) array, and the distinct rows. x of a grid has 31 bits: 64 do not hold all
    three.

    >>> code, distinct = distinct_triples(np.array([[1, 1, 1], [2**22 + 1, 1, 1], [1, 1, 1]]))
    >>> code.tolist(), distinct.tolist()
    ([0, 1, 0], [[1, 1, 1], [4194305, 1, 1]])
    """
    wide = values.astype(np.int64)
    plane, planes = arrow.factorize((wide[:, 1] << 31) + wide[:, 2])
    first = arrow.factorize(wide[:, 0])[0].astype(np.int64)
    code, keys = arrow.factorize(first * len(planes) + plane)
    place = np.zeros(len(keys), np.int64)
    place[code] = np.arange(len(code))
    return code, values[place]


class _Template(NamedTuple):
    """A line with slots for numbers, the number of its inner calls, and the offsets of its sequence numbers before and
    after subSeqId."""

    text: str
    inner: int
    offsets: tuple[list[int], list[int]]


def _template(rows: Rows, name: int, site_code: int, kind: int, style: _Style) -> _Template:
    site = rows.sites[site_code]

    def constant(value: Any) -> str:
        return style.text(list(value) if isinstance(value, tuple) else value)

    def numbers(offsets: Iterable[int]) -> str:
        return "[" + ", ".join(_SLOT for _ in offsets) + "]"

    # Calls inside the outermost one have no key of their own: their numbers are in their texts.
    inner = max(sum(not is_event(call) for call in site.calls) - 1, 0)
    inner = min(inner, len(rows.inner_calls))
    slot = "@callid@"  # placeholder of the number
    while any(slot in text for text in site.markers):
        slot += "@"
    markers = [with_call_id(text, slot) if 1 <= i <= inner else text for i, text in enumerate(site.markers)]
    inner = sum(slot in text for text in markers)
    marked = [(text, offset) for text, offset in site.seq_names if offset is not None]
    seq_markers = ", ".join(
        constant(text + ", seq = ")[:-1] + _SLOT + constant(text + ", seq = ")[-1] for text, _ in marked
    )
    direction = constant(DIRECTIONS[site.direction]) if site.direction in (FPROP, BPROP) else style.none
    values = {
        "kShortName": constant(rows.short_names[name]), "layer": constant(site.layer), "trace": constant(site.trace),
        "reprMarkers": constant(site.reprs), "marker": constant(markers).replace(slot, _SLOT),
        "seqMarker": f"[{seq_markers}]", "seqId": numbers(site.seq_ids), "altSeqId": numbers(site.alt_seq_ids),
        "dir": direction, "mod": constant(site.mods), "op": constant(site.ops), "kLongName": constant(rows.names[name]),
        "module": constant(site.module) if site.module else style.none, "phase": constant(PHASES[site.phase]),
        "kind": constant(KINDS[kind]),
        "caller": style.none if (line := caller(site.trace)) is None else constant(line),
    }  # fmt: skip
    offsets = [*(offset for _, offset in marked), *site.seq_ids], list(site.alt_seq_ids)
    return _Template(_frame(style) % values, inner, offsets)


@cache
def _frame(style: _Style) -> str:
    """Return a line with placeholders for its constants by key, shared by all templates."""
    cells = (f"{style.text(key)}: " + (f"%({key})s" if key in _CONSTANTS else _SLOT) for key in KEYS)
    return "{" + ", ".join(cells) + "}\n"


# Keys whose value is the same for all rows of a kernel and site, sequence numbers apart.
_CONSTANTS = {"kShortName", "layer", "trace", "reprMarkers", "marker", "seqMarker", "seqId", "altSeqId", "dir", "mod",
              "op", "kLongName", "module", "phase", "kind", "caller"}  # fmt: skip
