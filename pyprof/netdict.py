# SPDX-License-Identifier: Apache-2.0
"""net.dict: one Python literal per line and kernel, the contract between `parse` and `prof`.

The first 19 keys are the original's, in its order; ours follow. Unknown is None. Times are ns from the recording's
first event. Nothing is ever evaluated: a line is read with `ast.literal_eval`, once per distinct pattern of line.

Writing formats whole groups of rows with one template each; reading cuts a line at its numbers, so that the rest is a
key into a cache. A line that does not have the pattern (written by hand, by the original, by another version) is read
on its own: keys may be in any order, unknown ones are ignored, missing ones are unknown.

>>> row = '{"kShortName": "relu", "kDuration": 5, "dir": "fprop", "op": ["relu"]}'
>>> rows = read([row]); rows.short_names, int(rows.duration[0]), rows.sites[0].ops
(['relu'], 5, ('relu',))
"""

from __future__ import annotations

import ast
import json
import re
from collections.abc import Callable, Iterable, Iterator
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from pyprof.errors import FormatError
from pyprof.marker import CALL_ID, CallMarker, decode, is_event, split, with_call_id
from pyprof.model import BPROP, DIRECTIONS, FPROP, KINDS, OPERATOR, PHASES, Column, Ints, Rows, Site

ORIGINAL_KEYS = (
    "kShortName", "kDuration", "layer", "trace", "reprMarkers", "marker", "seqMarker", "seqId", "subSeqId", "altSeqId",
    "dir", "mod", "op", "tid", "device", "stream", "grid", "block", "kLongName",
)  # fmt: skip
OUR_KEYS = (
    "start", "end", "launchStart", "launchEnd", "correlation", "pid", "context", "registers", "sharedMemory", "module",
    "fwdThread", "graph", "phase", "kind", "call",
)  # fmt: skip
KEYS = ORIGINAL_KEYS + OUR_KEYS

_BLOCK = 32768  # rows formatted at a time: bounds the memory of a large file


class _Style(NamedTuple):
    """How the parts of a line are written."""

    text: Callable[[Any], str]  # constants
    none: str
    triple: str  # of grid and block


_LITERAL = _Style(repr, "None", "(%d, %d, %d)")
_JSON = _Style(lambda value: json.dumps(value, ensure_ascii=False), "null", "[%d, %d, %d]")


def lines(rows: Rows) -> Iterator[str]:
    """The lines of net.dict, without line ends, in the order of the rows."""
    return _format(rows, _LITERAL)


def json_lines(rows: Rows) -> Iterator[str]:
    """The same rows as JSON, one object per line: tuples become lists, None becomes null."""
    return _format(rows, _JSON)


def _format(rows: Rows, style: _Style) -> Iterator[str]:
    """Rows of one kernel and site share a template; only numbers are filled in per row."""
    templates: dict[tuple[int, int, int], _Template] = {}
    for first in range(0, len(rows), _BLOCK):
        block = slice(first, min(first + _BLOCK, len(rows)))
        groups, order, bounds = _groups(rows, block)
        cells = _cells(rows, block, order, style)
        base = rows.seq.values[block][order]
        out = [""] * len(order)
        for number, key in enumerate(groups):
            template = templates.get(key)
            if template is None:
                template = templates[key] = _template(rows, *key, style)
            members = slice(bounds[number], bounds[number + 1])
            duration, sub, *rest = (column[members] for column in cells)
            before, after = ([(base[members] + n).tolist() for n in side] for side in template.offsets)
            inner = [
                column.values[block][order[members]].tolist() for column in rows.inner_calls[: template.inner]
            ]
            columns = (duration, *inner, *before, sub, *after, *rest)
            for place, line in zip(order[members].tolist(), map(template.text.__mod__, zip(*columns))):
                out[place] = line
        yield from out


def _groups(rows: Rows, block: slice) -> tuple[list[tuple[int, int, int]], Ints, list[int]]:
    """Distinct (name, site, kind) of some rows, an order that sorts by them, and where each begins in it."""
    n_names, n_kinds = len(rows.names), len(KINDS)
    key = (rows.site[block].astype(np.int64) * n_names + rows.name[block]) * n_kinds + rows.kind[block]
    code, keys = pd.factorize(key)
    order = np.argsort(code, kind="stable")
    bounds = np.searchsorted(code[order], np.arange(len(keys) + 1)).tolist()
    groups = [(k // n_kinds % n_names, k // n_kinds // n_names, k % n_kinds) for k in keys.tolist()]
    return groups, order, bounds


def _cells(rows: Rows, block: slice, order: Ints, style: _Style) -> list[list[Any]]:
    """The varying values of some rows, in the order of their keys, apart from sequence numbers."""

    def column(values: Column | Ints, absent: str = style.none) -> list[Any]:
        if not isinstance(values, Column):
            return list(values[block][order].tolist())
        out = values.values[block][order]
        if values.present is None or values.present[block].all():
            return list(out.tolist())
        boxed = out.astype(object)
        boxed[~values.present[block][order]] = absent
        return list(boxed.tolist())

    def triple(values: Ints) -> list[str]:
        code, distinct = distinct_triples(values[block][order])
        texts = np.array([style.triple % tuple(row) for row in distinct.tolist()] + [style.none], object)
        return list(texts[np.where(rows.shaped[block][order], code, len(distinct))].tolist())

    cpu = style.text("cpu") if (rows.kind[block] == OPERATOR).all() else style.none
    return [
        column(rows.duration), column(rows.sub), column(rows.tid), column(rows.device, cpu), column(rows.stream),
        triple(rows.grid), triple(rows.block), column(rows.start), column(rows.end), column(rows.launch_start),
        column(rows.launch_end), column(rows.correlation), column(rows.pid), column(rows.context),
        column(rows.registers), column(rows.shared_memory), column(rows.forward_thread), column(rows.graph),
        column(rows.call),
    ]  # fmt: skip


def distinct_triples(values: Ints) -> tuple[Ints, Ints]:
    """A code per row of an (n, 3) array, and the distinct rows. x of a grid has 31 bits: 64 do not hold all three.

    >>> code, distinct = distinct_triples(np.array([[1, 1, 1], [2**22 + 1, 1, 1], [1, 1, 1]]))
    >>> code.tolist(), distinct.tolist()
    ([0, 1, 0], [[1, 1, 1], [4194305, 1, 1]])
    """
    wide = values.astype(np.int64)
    plane, planes = pd.factorize((wide[:, 1] << 31) + wide[:, 2])
    code, keys = pd.factorize(pd.factorize(wide[:, 0])[0] * max(len(planes), 1) + plane)
    place = np.zeros(len(keys), np.int64)
    place[code] = np.arange(len(code))
    return code, values[place]


class _Template(NamedTuple):
    """A line with %s where numbers go, the number of its inner calls, and the offsets of its sequence numbers before
    and after subSeqId."""

    text: str
    inner: int
    offsets: tuple[list[int], list[int]]


def _template(rows: Rows, name: int, site_code: int, kind: int, style: _Style) -> _Template:
    site = rows.sites[site_code]

    def constant(value: Any) -> str:
        return style.text(list(value) if isinstance(value, tuple) else value).replace("%", "%%")

    def numbers(offsets: Iterable[int]) -> str:
        return "[" + ", ".join("%s" for _ in offsets) + "]"

    # Calls inside the outermost one have no key of their own: their texts carry their numbers.
    inner = max(sum(not is_event(call) for call in site.calls) - 1, 0)
    inner = min(inner, len(rows.inner_calls))
    slot = "@callid@"  # where the number goes
    while any(slot in text for text in site.markers):
        slot += "@"
    markers = [with_call_id(text, slot) if 1 <= i <= inner else text for i, text in enumerate(site.markers)]
    inner = sum(slot in text for text in markers)
    marked = [(text, offset) for text, offset in site.seq_names if offset is not None]
    seq_markers = ", ".join(
        constant(text + ", seq = ")[:-1] + "%s" + constant(text + ", seq = ")[-1] for text, _ in marked
    )
    direction = constant(DIRECTIONS[site.direction]) if site.direction in (FPROP, BPROP) else style.none
    values = {
        "kShortName": constant(rows.short_names[name]), "layer": constant(site.layer), "trace": constant(site.trace),
        "reprMarkers": constant(site.reprs), "marker": constant(markers).replace(slot, "%s"),
        "seqMarker": f"[{seq_markers}]", "seqId": numbers(site.seq_ids), "altSeqId": numbers(site.alt_seq_ids),
        "dir": direction, "mod": constant(site.mods), "op": constant(site.ops), "kLongName": constant(rows.names[name]),
        "module": constant(site.module) if site.module else style.none, "phase": constant(PHASES[site.phase]),
        "kind": constant(KINDS[kind]),
    }  # fmt: skip
    text = ", ".join(f"{style.text(key)}: {values.get(key, '%s')}" for key in KEYS)
    return _Template(
        f"{{{text}}}", inner, ([*(offset for _, offset in marked), *site.seq_ids], list(site.alt_seq_ids))
    )


def read(source: Iterable[str], name: str = "net.dict") -> Rows:
    """Rows from lines of net.dict. Raises FormatError, naming file and line, for a line that is not a dictionary."""
    table = _Table()
    for number, line in enumerate(source, 1):
        if line.strip():
            try:
                table.add(line)
            except (ValueError, SyntaxError, TypeError, AttributeError, MemoryError, RecursionError) as error:
                reason = "code, not data" if "malformed node" in str(error) else str(error).splitlines()[0]
                raise FormatError(
                    f"{name}: line {number} is no kernel of net.dict ({reason[:80]}); "
                    "expected one dictionary per line, as parse.py writes it."
                ) from None
    return table.rows()


_STRING = r"""(?:'[^'\\\n]*(?:\\.[^'\\\n]*)*'|"[^"\\\n]*(?:\\.[^"\\\n]*)*")"""
_STRINGS = rf"\[(?:{_STRING}(?:, {_STRING})*)?\]"
_NUMBER = r"-?\d{1,18}"  # fits 64 bits; a longer one is no number of ours
_INTEGER, _INTEGERS = rf"(?:{_NUMBER}|None)", rf"\[(?:{_NUMBER}(?:, {_NUMBER})*)?\]"
_TRIPLE = r"(?:\(\d+, \d+, \d+\)|None)"
_PATTERNS = {
    "kShortName": _STRING, "layer": _STRINGS, "trace": _STRINGS, "reprMarkers": _STRINGS, "marker": _STRINGS,
    "seqMarker": _STRINGS, "seqId": _INTEGERS, "altSeqId": _INTEGERS, "dir": rf"(?:{_STRING}|None)", "mod": _STRINGS,
    "op": _STRINGS, "device": r"(?:\d{1,9}|None|'cpu')", "grid": _TRIPLE, "block": _TRIPLE, "kLongName": _STRING,
    "module": rf"(?:{_STRING}|None)", "phase": _STRING, "kind": _STRING,
}  # fmt: skip
# Our own lines: every key in its place. Quoted text is matched as a whole, so no text can pose as a key.
_LINE = re.compile(
    r"\{" + ", ".join(f"'{key}': (?P<{key}>{_PATTERNS.get(key, _INTEGER)})" for key in KEYS) + r"\}\s*\Z"
)
_CONSTANT = (
    "kShortName",
    "layer",
    "trace",
    "reprMarkers",
    "marker",
    "dir",
    "mod",
    "op",
    "kLongName",
    "module",
    "phase",
    "kind",
)
_SEQ = re.compile(rf"(?<=, seq = ){_NUMBER}(?=['\"])")
_CALL_ID = re.compile(CALL_ID)
_Triple = tuple[int, int, int] | None


class _Table:
    """Rows while they are read."""

    _FIELDS = ("kDuration", "subSeqId", "tid", "stream", "start", "end", "launchStart", "launchEnd", "correlation",
               "pid", "context", "registers", "sharedMemory", "fwdThread", "graph", "call")  # fmt: skip

    def __init__(self) -> None:
        self.columns: dict[str, list[int | None]] = {key: [] for key in (*self._FIELDS, "device", "seq")}
        self.grid: list[_Triple] = []
        self.block: list[_Triple] = []
        self.inner: list[tuple[int, ...]] = []
        self.name: list[int] = []
        self.site: list[int] = []
        self.kind: list[int] = []
        self.names: dict[tuple[str, str], int] = {}
        self.sites: dict[Site, int] = {}
        # Quoted parts of a line, sequence numbers cut out -> codes of kernel, site and kind.
        self._known: dict[tuple[Any, ...], tuple[int, int, int]] = {}
        self._triples: dict[str, tuple[int, int, int] | None] = {}

    def add(self, line: str) -> None:
        """One line: through the cache if it is one of our own, else as a literal read in full."""
        match = _LINE.match(line)
        if match is None:
            fields = ast.literal_eval(line.strip())
            if not isinstance(fields, dict):
                raise ValueError(f"found {type(fields).__name__}")
            self._append(fields)
            return
        found = match.groupdict()
        seq_marker = found["seqMarker"]
        texts = _SEQ.findall(seq_marker)
        for ids in (found["seqId"], found["altSeqId"]):
            texts += ids[1:-1].split(", ") if len(ids) > 2 else ()
        numbers = [int(text) for text in texts]
        base = numbers[0] if numbers else None
        offsets = tuple(number - numbers[0] for number in numbers)
        inner = _CALL_ID.findall(found["marker"]) if "'callid': " in found["marker"] else ()
        if inner:
            found["marker"] = _CALL_ID.sub("", found["marker"])
        key = (
            *(found[k] for k in _CONSTANT),
            _SEQ.sub("", seq_marker),
            found["seqId"] == "[]",
            found["altSeqId"] == "[]",
            offsets,
        )
        codes = self._known.get(key)
        if codes is None:
            quoted = (*_CONSTANT, "seqMarker", "seqId", "altSeqId")
            base, *rest = self._codes(
                {k: ast.literal_eval(found[k]) for k in quoted} | {"device": found["device"]}
            )
            codes = self._known[key] = (rest[0], rest[1], rest[2])
        for k in self._FIELDS:
            text = found[k]
            self.columns[k].append(None if text == "None" else int(text))
        device = found["device"]
        self.columns["device"].append(int(device) if device.isdigit() else None)
        self._end(
            base, codes, self._triple(found["grid"]), self._triple(found["block"]), tuple(map(int, inner))
        )

    def _triple(self, text: str) -> tuple[int, int, int] | None:
        if text not in self._triples:
            self._triples[text] = _triple(ast.literal_eval(text))
        return self._triples[text]

    def _append(self, fields: dict[Any, Any]) -> None:
        base, *codes = self._codes(fields)
        for key in self._FIELDS:
            self.columns[key].append(_integer(fields.get(key)))
        device = _integer(fields.get("device"))
        self.columns["device"].append(None if device is None or device < 0 else device)
        inner = tuple(
            int(number) for text in _texts(fields.get("marker")) for number in _CALL_ID.findall(text)
        )
        self._end(
            base,
            (codes[0], codes[1], codes[2]),
            _triple(fields.get("grid")),
            _triple(fields.get("block")),
            inner,
        )

    def _codes(self, fields: dict[Any, Any]) -> tuple[int | None, int, int, int]:
        """The first sequence number, and the codes of kernel name, site and kind."""
        long_name = str(fields.get("kLongName") or fields.get("kShortName") or "")
        names = (long_name, str(fields.get("kShortName") or long_name))
        kind = fields.get("kind")
        if kind not in KINDS:
            kind = "operator" if fields.get("device") == "cpu" else "kernel"
        base, site = _site(fields)
        name_code, site_code = (
            self.names.setdefault(names, len(self.names)),
            self.sites.setdefault(site, len(self.sites)),
        )
        return base, name_code, site_code, KINDS.index(kind)

    def _end(
        self,
        base: int | None,
        codes: tuple[int, int, int],
        grid: _Triple,
        block: _Triple,
        inner: tuple[int, ...],
    ) -> None:
        self.columns["seq"].append(base)
        self.inner.append(inner)
        self.grid.append(grid)
        self.block.append(block)
        for column, code in zip((self.name, self.site, self.kind), codes):
            column.append(code)

    def rows(self) -> Rows:
        column = {key: _column(values) for key, values in self.columns.items()}
        shaped = np.array([g is not None and b is not None for g, b in zip(self.grid, self.block)], bool)
        grid, block = (
            np.array([t or (0, 0, 0) for t in side], np.int32).reshape(-1, 3)
            for side in (self.grid, self.block)
        )
        duration = column["kDuration"].values
        start = column["start"]
        # Old files have no times: the order of the lines is all they say.
        begin = np.where(start.mask(), start.values, 0)
        end = np.where(column["end"].mask(), column["end"].values, begin + duration)
        rows = Rows(
            names=[long for long, _ in self.names], short_names=[short for _, short in self.names],
            sites=list(self.sites), name=np.array(self.name, np.int64), site=np.array(self.site, np.int64), start=begin,
            end=end, duration=duration, launch_start=column["launchStart"], launch_end=column["launchEnd"],
            correlation=column["correlation"], pid=column["pid"].values, tid=column["tid"],
            context=column["context"], device=column["device"], stream=column["stream"], grid=grid, block=block,
            shaped=shaped, registers=column["registers"], shared_memory=column["sharedMemory"],
            graph=column["graph"], kind=np.array(self.kind, np.int8), seq=column["seq"], sub=column["subSeqId"].values,
            call=column["call"], inner_calls=_inner(self.inner), forward_thread=column["fwdThread"],
        )  # fmt: skip
        if not column["call"].mask().any():
            _pair_old(rows)
        return rows


def _site(fields: dict[Any, Any]) -> tuple[int | None, Site]:
    """The first sequence number of a line and its Site, whose numbers are relative to it."""
    seq_ids, alt_ids = (_integers(fields.get(key)) for key in ("seqId", "altSeqId"))
    names: list[tuple[str, int | None]] = []
    for text in _texts(fields.get("seqMarker")):
        name, number, _ = split(text)
        names.append((name, number))
    numbers = [number for _, number in names if number is not None] + seq_ids + alt_ids
    base = numbers[0] if numbers else None
    zero = base or 0
    markers = tuple(split(text)[0] for text in _texts(fields.get("marker")))
    calls = [marker.call for text in markers if isinstance(marker := decode(text), CallMarker)]
    mods, ops = _texts(fields.get("mod")), _texts(fields.get("op"))
    direction, phase, module = fields.get("dir"), fields.get("phase"), fields.get("module")
    return base, Site(
        layer=_texts(fields.get("layer")),
        trace=_texts(fields.get("trace")),
        reprs=_texts(fields.get("reprMarkers")),
        markers=markers,
        calls=tuple(calls),
        seq_names=tuple((name, None if number is None else number - zero) for name, number in names),
        seq_ids=tuple(number - zero for number in seq_ids),
        alt_seq_ids=tuple(number - zero for number in alt_ids),
        direction=DIRECTIONS.index(direction) if direction in DIRECTIONS else DIRECTIONS.index("na"),
        phase=PHASES.index(phase) if phase in PHASES else PHASES.index("none"),
        mods=mods,
        ops=ops,
        module=module if isinstance(module, str) else None,
    )


def _inner(chains: list[tuple[int, ...]]) -> list[Column]:
    """Numbers of inner calls, level by level."""
    depth = max(map(len, chains), default=0)
    return [
        _column([chain[level] if len(chain) > level else None for chain in chains]) for level in range(depth)
    ]


def _pair_old(rows: Rows) -> None:
    """Files without call numbers: number the calls, and give a backward row the forward that it names.

    The forward is the last row above with the sequence number, as the original does it. A call ends where the
    outermost marker changes, or where a kernel of the call comes again from the same operator in it: subSeqId does not
    tell, it counts from 0 for every operator inside a call, and on across calls that create no node.
    """
    forwards: dict[int, int] = {}
    number = -1
    call: Any = None  # what the rows of the current call share
    seen: set[Any] = set()
    calls = np.zeros(len(rows), np.int64)
    sites: dict[Site, int] = {site: i for i, site in enumerate(rows.sites)}
    for i in range(len(rows)):
        site = rows.sites[rows.site[i]]
        ids = [int(rows.seq.values[i]) + offset for offset in (*site.seq_ids, *site.alt_seq_ids)]
        if site.direction == BPROP and not site.calls:
            origin = forwards.get(ids[0]) if ids else None
            if origin is not None:
                source = rows.sites[rows.site[origin]]
                paired = site._replace(
                    calls=source.calls, markers=source.markers, mods=source.mods, ops=source.ops, layer=source.layer,
                    trace=source.trace, reprs=source.reprs, module=source.module,
                )  # fmt: skip
                rows.site[i] = sites.setdefault(paired, len(sites))
                calls[i] = calls[origin]
                call = None
                continue
        here = (site.direction, site.markers[:1], site.trace, site.layer)
        kernel = (site.markers, int(rows.name[i]))
        if here != call or kernel in seen or not site.markers:
            number += 1
            call, seen = here, set()
        seen.add(kernel)
        calls[i] = number
        if site.direction == FPROP:
            forwards.update(dict.fromkeys(ids, i))
    rows.sites = list(sites)
    rows.call = Column(calls)


def _column(values: list[int | None]) -> Column:
    present = np.array([value is not None for value in values], bool)
    numbers = np.array([value or 0 for value in values], np.int64)
    return Column(numbers, None if present.all() else present)


def _integer(value: Any) -> int | None:
    if type(value) is int and -(2**63) <= value < 2**63:
        return value
    return None


def _integers(value: Any) -> list[int]:
    """The numbers of a list that a sequence number can be: they are added to and subtracted from one another."""
    items = value if isinstance(value, (list, tuple)) else ()
    return [item for item in items if type(item) is int and abs(item) < 10**18]


def _texts(value: Any) -> tuple[str, ...]:
    return tuple(str(item) for item in value) if isinstance(value, (list, tuple)) else ()


def _triple(value: Any) -> tuple[int, int, int] | None:
    if (
        isinstance(value, (list, tuple))
        and len(value) == 3
        and all(type(v) is int and 0 <= v < 2**31 for v in value)
    ):
        return (value[0], value[1], value[2])
    return None


__all__ = ["KEYS", "ORIGINAL_KEYS", "OUR_KEYS", "distinct_triples", "json_lines", "lines", "read"]
