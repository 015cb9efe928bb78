# SPDX-License-Identifier: Apache-2.0
"""Reader of net.dict: a line is cut at its numbers, so that the remainder is a key into a cache.

A line that does not match the pattern (written by hand, by the original, by another version) is parsed on its own:
keys may be in any order, unknown ones are ignored, missing ones are unknown.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable
from typing import Any

import numpy as np

from pyprof.core import inputs
from pyprof.core.errors import FormatError
from pyprof.core.marker import CALL_ID, CallMarker, decode, split
from pyprof.core.model import BPROP, DIRECTIONS, FPROP, KINDS, PHASES, Column, Ints, Rows, Site
from pyprof.core.netdict.keys import KEYS


def read(source: Iterable[str], name: str = "net.dict") -> Rows:
    """Return the rows of lines of net.dict. Raises FormatError, naming file and line, for a line that is not a
    dictionary; and for times that add up to more than a sum can hold."""
    table = _Table()
    for number, line in enumerate(source, 1):
        if line.strip():
            try:
                table.add(line)
            except (ValueError, SyntaxError, TypeError, AttributeError, MemoryError, RecursionError) as error:
                if isinstance(error, (MemoryError, RecursionError)):  # from the parser, without a message
                    reason = "nested too deep"
                else:
                    reason = "code, not data" if "malformed node" in str(error) else str(error).splitlines()[0]
                raise FormatError(
                    f"{name}: line {number} is not a kernel of net.dict ({reason[:80]}); "
                    "expected one dictionary per line, as parse.py writes it."
                ) from None
    rows = table.rows()
    inputs.check_sum(name, rows.duration)
    return rows


_STRING = r"""(?:'[^'\\\n]*(?:\\.[^'\\\n]*)*'|"[^"\\\n]*(?:\\.[^"\\\n]*)*")"""
_STRINGS = rf"\[(?:{_STRING}(?:, {_STRING})*)?\]"
_NUMBER = r"-?\d{1,18}"  # fits 64 bits; PyProf writes no longer ones
_INTEGER, _INTEGERS = rf"(?:{_NUMBER}|None)", rf"\[(?:{_NUMBER}(?:, {_NUMBER})*)?\]"
_TRIPLE = r"(?:\(\d+, \d+, \d+\)|None)"
_PATTERNS = {
    "kShortName": _STRING, "layer": _STRINGS, "trace": _STRINGS, "reprMarkers": _STRINGS, "marker": _STRINGS,
    "seqMarker": _STRINGS, "seqId": _INTEGERS, "altSeqId": _INTEGERS, "dir": rf"(?:{_STRING}|None)", "mod": _STRINGS,
    "op": _STRINGS, "device": r"(?:\d{1,9}|None|'cpu')", "grid": _TRIPLE, "block": _TRIPLE, "kLongName": _STRING,
    "module": rf"(?:{_STRING}|None)", "phase": _STRING, "kind": _STRING,
    "caller": rf"(?:{_STRING}|None)",
}  # fmt: skip
# Lines written by PyProf: every key in its place. Quoted text is matched as a whole, so no text can pose as a key.
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
_TEXT = re.compile(_STRING)
_SEQ = re.compile(rf"(?<=, seq = ){_NUMBER}(?=['\"]\Z)")  # in one quoted text
_CALL_ID = re.compile(CALL_ID)
_LONGEST = 2**60  # ns of a kernel
_Triple = tuple[int, int, int] | None


class _Table:
    """Rows under construction."""

    _FIELDS = ("kDuration", "subSeqId", "tid", "stream", "start", "end", "launchStart", "launchEnd", "correlation",
               "pid", "context", "registers", "sharedMemory", "fwdThread", "graph", "call",
               "launcher")  # fmt: skip

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
        self._cache: dict[tuple[Any, ...], tuple[int, int, int]] = {}
        self._triples: dict[str, tuple[int, int, int] | None] = {}

    def add(self, line: str) -> None:
        """Add one line: through the cache if PyProf wrote it, else parsed in full as a literal."""
        match = _LINE.match(line)
        if match is None:
            fields = ast.literal_eval(line.strip())
            if not isinstance(fields, dict):
                raise ValueError(f"found {type(fields).__name__}")
            if "kShortName" not in fields:
                raise ValueError("it has no kShortName")
            self._append(fields)
            return
        cells = match.groupdict()
        texts: list[str] = []
        names: list[str] = []
        # Inside a text, what looks like the end of one is a part of a name.
        for text in _TEXT.findall(cells["seqMarker"]):
            number = _SEQ.search(text)
            texts += [number[0]] if number else ()
            names.append(text[: number.start()] if number else text)
        for ids in (cells["seqId"], cells["altSeqId"]):
            texts += ids[1:-1].split(", ") if len(ids) > 2 else ()
        numbers = [int(text) for text in texts]
        base = numbers[0] if numbers else None
        offsets = tuple(number - numbers[0] for number in numbers)
        inner = _CALL_ID.findall(cells["marker"]) if "'callid': " in cells["marker"] else ()
        if inner:
            cells["marker"] = _CALL_ID.sub("", cells["marker"])
        key = (
            *(cells[k] for k in _CONSTANT),
            cells["seqId"] == "[]",
            cells["altSeqId"] == "[]",
            offsets,
            *names,
        )
        codes = self._cache.get(key)
        if codes is None:
            quoted = (*_CONSTANT, "seqMarker", "seqId", "altSeqId")
            base, name, site, kind = self._codes(
                {k: ast.literal_eval(cells[k]) for k in quoted} | {"device": cells["device"]}
            )
            codes = self._cache[key] = (name, site, kind)
        for k in self._FIELDS:
            text = cells[k]
            self.columns[k].append(None if text == "None" else int(text))
        device = cells["device"]
        self.columns["device"].append(int(device) if device.isdigit() else None)
        self._end(base, codes, self._triple(cells["grid"]), self._triple(cells["block"]), tuple(map(int, inner)))

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
        inner = tuple(int(number) for text in _texts(fields.get("marker")) for number in _CALL_ID.findall(text))
        self._end(
            base,
            (codes[0], codes[1], codes[2]),
            _triple(fields.get("grid")),
            _triple(fields.get("block")),
            inner,
        )

    def _codes(self, fields: dict[Any, Any]) -> tuple[int | None, int, int, int]:
        """Return the first sequence number, and the codes of kernel name, site and kind."""
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
        column["kDuration"] = _time(column["kDuration"])
        duration = np.maximum(column["kDuration"].values, 0)
        start = column["start"]
        # Old files have no times, only the order of the lines.
        begin = np.where(start.mask(), start.values, 0)
        end = column["end"].values
        valid = column["end"].mask() & (end >= begin)  # an end before the start is invalid
        end = np.where(valid, end, begin + np.minimum(duration, 2**63 - 1 - np.maximum(begin, 0)))
        rows = Rows(
            names=[long for long, _ in self.names], short_names=[short for _, short in self.names],
            sites=list(self.sites), name=np.array(self.name, np.int64), site=np.array(self.site, np.int64), start=begin,
            end=end, duration=duration, launch_start=column["launchStart"], launch_end=column["launchEnd"],
            correlation=column["correlation"], pid=column["pid"], tid=column["tid"],
            process=_processes(column["pid"]),
            context=column["context"], device=column["device"], stream=column["stream"],
            grid=_triples(self.grid), block=_triples(self.block), registers=column["registers"],
            shared_memory=column["sharedMemory"],
            graph=column["graph"], kind=np.array(self.kind, np.int8), seq=column["seq"], sub=column["subSeqId"].values,
            call=column["call"], inner_calls=_inner(self.inner), launcher=column["launcher"],
            forward_thread=column["fwdThread"],
        )  # fmt: skip
        if not column["call"].mask().any():
            _pair_old(rows)
        return rows


def _processes(pid: Column) -> Ints:
    """Return a number for each pid; -1 without one."""
    codes: Ints = np.unique(pid.values, return_inverse=True)[1]
    return np.where(pid.mask(), codes, -1)


def _site(fields: dict[Any, Any]) -> tuple[int | None, Site]:
    """Return the first sequence number of a line and its Site, whose numbers are relative to it."""
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
    """Return the numbers of inner calls, level by level."""
    depth = max(map(len, chains), default=0)
    return [_column([chain[level] if len(chain) > level else None for chain in chains]) for level in range(depth)]


def _pair_old(rows: Rows) -> None:
    """Number the calls of a file without call numbers, and give each backward row the forward that it names.

    The forward is the last row above with the sequence number, as in the original. A call ends where the outermost
    marker changes, or where a kernel of the call occurs again for the same operator in it: subSeqId does not show
    that, since it starts at 0 for every operator inside a call, and continues across calls that create no node.
    """
    forwards: dict[int, int] = {}
    number = -1
    call: Any = None  # common key of the rows of the current call
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
        current = (site.direction, site.markers[:1], site.trace, site.layer)
        kernel = (site.markers, int(rows.name[i]))
        if current != call or kernel in seen or not site.markers:
            number += 1
            call, seen = current, set()
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


def _time(column: Column) -> Column:
    """Mark invalid times as missing, as for recordings."""
    fine = column.mask() & (column.values <= _LONGEST)
    return column if fine.all() else Column(np.where(fine, column.values, 0), fine)


def _triples(values: list[_Triple]) -> Column:
    present = np.array([value is not None for value in values], bool)
    return Column(np.array([value or (0, 0, 0) for value in values], np.int32).reshape(-1, 3), present)


def _integer(value: Any) -> int | None:
    if type(value) is int and -(2**63) <= value < 2**63:
        return value
    return None


def _integers(value: Any) -> list[int]:
    """Return the numbers of a list that can be sequence numbers: sums and differences of them must not overflow."""
    items = value if isinstance(value, (list, tuple)) else ()
    return [item for item in items if type(item) is int and abs(item) < 10**18]


def _texts(value: Any) -> tuple[str, ...]:
    return tuple(str(item) for item in value) if isinstance(value, (list, tuple)) else ()


def _triple(value: Any) -> tuple[int, int, int] | None:
    if isinstance(value, (list, tuple)) and len(value) == 3 and all(type(v) is int and 0 <= v < 2**31 for v in value):
        return (value[0], value[1], value[2])
    return None
