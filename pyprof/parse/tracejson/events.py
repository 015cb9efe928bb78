# SPDX-License-Identifier: Apache-2.0
"""Events from the text of a trace, decoded only as far as they are needed.

A file is cut into events without looking into them; `Event` has the fields that define an event's kind, and the
others (`args`, the times) stay text until they are needed. A text that is not JSON is cut at what looks like the
border of two events, each is repaired by itself, and what stays unreadable is counted. Known faults of files written
by torch are quotes and control characters in names, bare N/A and NaN for numbers, values without quotes or without
anything, backslashes of Windows that are not escaped, and files of killed programs that end anywhere.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from contextlib import suppress
from itertools import islice
from typing import Any, NamedTuple, TypeVar

import msgspec

CHUNK = 1 << 14  # events handled at a time
_AT_ONCE = 1 << 28  # bytes whose events are decoded together, which takes three times the memory
UNREADABLE = "events that could not be read"
# Errors of decoding: invalid JSON, unexpected types, invalid UTF-8, brackets nested deeper than the stack.
FAULTS = (msgspec.MsgspecError, UnicodeError, RecursionError)
_NOTHING = msgspec.Raw(b"")


# Anything, with floats as such: those of fields of type Any, such as `ts`, are decoded as texts.
_Number = int | float | str | bool | None | list[Any] | dict[str, Any]


class Event(msgspec.Struct, gc=False):
    """One event. Times are microseconds: a whole number, or the text of one with decimals."""

    ph: str = ""
    cat: str | None = None
    name: str = ""
    pid: _Number = None
    tid: _Number = None
    ts: Any = None
    dur: Any = None
    id: _Number = None
    args: msgspec.Raw = _NOTHING


class Document(NamedTuple):
    """A trace: the fields beside the events, and the events, decoded or as text."""

    facts: dict[str, Any]
    events: list[Any]


_Type = TypeVar("_Type")
_FACTS = msgspec.json.Decoder(dict[str, msgspec.Raw])
_LIST = msgspec.json.Decoder(list[msgspec.Raw])
_EVENT = msgspec.json.Decoder(Event, float_hook=str)
_EVENTS = msgspec.json.Decoder(list[Event], float_hook=str)


def document(text: bytes, lost: dict[str, int]) -> Document | None:
    """Cut a text into events; return None if it has no list of events."""
    text = escape_paths(text.removeprefix(b"\xef\xbb\xbf"))
    try:
        if text[:4096].lstrip()[:1] == b"[":
            return Document({}, events_of(text))
        parts = _FACTS.decode(text)
        if "traceEvents" in parts:
            events = events_of(parts.pop("traceEvents"))
            return Document({name: msgspec.json.decode(part) for name, part in parts.items()}, events)
    except FAULTS:
        pass
    return _cut_damaged(text, lost)


def events_of(text: Any) -> list[Any]:
    """Return the events of a list: decoded if they fit and all are sound, otherwise as text. Raises one of `FAULTS` for
    anything that is not a list."""
    if len(text) <= _AT_ONCE:
        with suppress(*FAULTS):
            return _EVENTS.decode(text)
    return _LIST.decode(text)


def chunks(trace: Document, lost: dict[str, int]) -> Iterator[list[Event]]:
    """Yield the events in chunks; they are removed from the document. Items that are not events are counted."""
    pending = trace.events
    while pending:
        chunk = pending[:CHUNK]
        del pending[:CHUNK]
        yield chunk if isinstance(chunk[0], Event) else _decode(chunk, lost)


def _decode(texts: Sequence[Any], lost: dict[str, int]) -> list[Event]:
    try:
        return _EVENTS.decode(b"[" + b",".join(texts) + b"]")
    except FAULTS:
        out = []
        for text in texts:
            event = decode_one(_EVENT, bytes(text))
            if event is None:
                lost[UNREADABLE] = lost.get(UNREADABLE, 0) + 1
            else:
                out.append(event)
        return out


def arguments(decoder: msgspec.json.Decoder[list[_Type]], events: Sequence[Event], empty: _Type) -> list[_Type]:
    """Decode the arguments of events. `empty` replaces missing ones and those of unexpected types."""
    texts = [event.args if len(event.args) > 1 else b"{}" for event in events]
    try:
        return decoder.decode(b"[" + b",".join(texts) + b"]")
    except FAULTS:
        out = []
        for text in texts:
            decoded = decode_one(decoder, b"[" + bytes(text) + b"]")
            out.append(decoded[0] if decoded else empty)
        return out


def decode_one(decoder: msgspec.json.Decoder[_Type], text: bytes) -> _Type | None:
    """Decode one text. It is repaired if necessary and not longer than an event can be, because a repair takes
    memory."""
    try:
        return decoder.decode(text)
    except FAULTS:
        if len(text) > _LONGEST:
            return None
        text = _clean(text)
    for repair in (bytes, _escape_names, _escape_strings):
        repaired = repair(text)
        for complete in (bytes, _complete_values):
            try:
                return decoder.decode(complete(repaired))
            except FAULTS:
                continue
    return None


# --- repair

_LONGEST = 1 << 20  # bytes of an event that is repaired

_KEY = rb'"(?:ph|cat|name|pid|tid|ts|dur|id|s|bp|args|cname)"\s*:'
BORDER = re.compile(rb"\}\s*,\s*\{(?=\s*(?:\}|" + _KEY + rb"))")
# Up to the next name at most: a text of nothing but names would take quadratic time.
_NAME = re.compile(rb'("name"\s*:\s*")((?:(?!"name"\s*:).)*?)(?="\s*(?:\}|,\s*' + _KEY + rb"))", re.S)
LIST_BEGINS = re.compile(rb'"traceEvents"\s*:\s*\[')
_LIST_ENDS, _TRIES = re.compile(rb"\}\s*\]"), 4
_NO_NUMBER = re.compile(rb"(:\s*|[\[,]\s*)(?:N/A|n/a|-?NaN|-?nan|-?Infinity|-?inf)(?=\s*[,}\]])")
# A backslash; a surrogate pair, 12 bytes; a lone surrogate, 6 bytes; a backslash that begins no escape, 1 byte.
_ESCAPES = re.compile(
    rb"\\\\|\\u[dD][89abAB]\w\w\\u[dD][c-fC-F]\w\w|\\u[dD][89a-fA-F]\w\w|"
    rb"\\(?![\"\\/bfnrt]|u[0-9a-fA-F]{4})"
)
_REPLACED = {1: rb"\\", 6: rb"\ufffd"}
# A string; a key without a value; a gap between commas; a comma after the last; a value that may not be JSON, up to
# the next key or the end.
_VALUES = re.compile(
    rb'"(?:\\.|[^"\\])*+"|(?P<colon>:)\s*(?=[,}])|(?P<comma>[\[,])\s*(?=,)|,\s*(?=[}\]])|'
    rb'(?<=:)\s*(?P<word>[^"\s{\[,}\]][^"{}\[\]]{0,300}?)(?=,\s*["}\]]|[}\]])',
    re.S,
)
_SCALARS = msgspec.json.Decoder(int | float | bool | None)
# A frame whose path has single backslashes, in a name or at the beginning of a stack, and the rest of the text.
_PATH = re.compile(rb'"((?:[A-Za-z]:)?[^"\\():;]*+(?:\\[^"\\():;]++)+\(\d+\): [^"]*)')
_PATHS = re.compile(rb'("(?:name|Call stack)"\s*:\s*)' + _PATH.pattern)
_LOOKED_AT, _LONG_PATH = (
    1000,
    300,
)  # backslashes of a text, to see whether there are such paths; bytes before them
_SINGLE = re.compile(rb"\\\\|\\(?!\")")
_CONTROL = bytes(range(32))
_AS_SPACE = bytes.maketrans(_CONTROL, b" " * 32)


def _clean(text: bytes) -> bytes:
    """Clean a text of control characters, foreign words for "no number", invalid UTF-8 and half characters."""
    text = text.translate(_AS_SPACE).decode("utf-8", "replace").encode()
    text = _ESCAPES.sub(lambda match: _REPLACED.get(len(match[0]), match[0]), text)
    return _NO_NUMBER.sub(rb"\1null", text)


def escape_paths(text: bytes) -> bytes:
    r"""Escape the backslashes of Windows' paths, which torch up to 2.0 wrote as they are: some look like escapes,
    and the text is JSON with other names.

    >>> escape_paths(rb'{"name": "app\new_model.py(219): run", "ts": 1}')
    b'{"name": "app\\\\new_model.py(219): run", "ts": 1}'
    """
    place = -1
    for _ in range(_LOOKED_AT):
        place = text.find(b"\\", place + 1)
        if place < 0:
            return text
        if _PATH.match(text, max(text.rfind(b'"', max(place - _LONG_PATH, 0), place), 0)):
            break
    else:
        return text

    def escape(match: re.Match[bytes]) -> bytes:
        return match[1] + b'"' + _SINGLE.sub(lambda one: one[0].ljust(2, b"\\"), match[2])

    return _PATHS.sub(escape, text)


def _complete_values(text: bytes) -> bytes:
    """Replace missing values by null, and put quotes around words that have none.

    >>> _complete_values(b'{"a": , "b": default_pg, "c": [1,,2], "d": 5,}')
    b'{"a":null, "b":"default_pg", "c": [1,null,2], "d":5}'
    """

    def complete(match: re.Match[bytes]) -> bytes:
        if match[0][:1] == b'"':
            return match[0]
        if match["word"] is None:
            return next((sign + b"null" for sign in (match["colon"], match["comma"]) if sign), b"")
        word: bytes = match["word"].rstrip()
        with suppress(*FAULTS):
            _SCALARS.decode(word)
            return word
        return msgspec.json.encode(word.decode("utf-8", "replace"))

    return _VALUES.sub(complete, text)


def _escape_names(text: bytes) -> bytes:
    """Escape quotes inside names. A name ends where another field of its event begins.

    >>> _escape_names(b'{"name": "{"k": 1}", "ts": 1}')
    b'{"name": "{\\\\"k\\\\": 1}", "ts": 1}'
    """

    def escape(quote: re.Match[bytes]) -> bytes:
        return b"\\" + quote[0] if quote[0] == b'"' else quote[0]

    return _NAME.sub(lambda match: match[1] + _QUOTE.sub(escape, match[2]), text)


def _escape_strings(text: bytes) -> bytes:
    """Escape quotes inside strings.

    A quote ends a string if JSON continues after it: with a colon, a closing bracket, or a comma and a new value.

    >>> _escape_strings(b'{"name": "say "hi", twice", "ts": 1}')
    b'{"name": "say \\\\"hi\\\\", twice", "ts": 1}'
    """
    out, last, inside = [], 0, False
    for match in _QUOTE.finditer(text):
        position = match.start()
        if match[0] != b'"':
            continue
        if not inside:
            inside = True
        elif _GOES_ON.match(text, position + 1):
            inside = False
        else:
            out += [text[last:position], b"\\"]
            last = position
    return b"".join([*out, text[last:]])


_QUOTE = re.compile(rb'\\.|"', re.S)
_GOES_ON = re.compile(rb'\s*(?:[:}\]]|,\s*(?:["{\[\-0-9]|true|false|null))')


def _cut_damaged(text: bytes, lost: dict[str, int]) -> Document | None:
    """Cut a text that is not valid JSON."""
    begin = LIST_BEGINS.search(text)
    if begin is not None:
        first = begin.end()
    elif text[:4096].lstrip()[:1] == b"[":
        first = text.index(b"[") + 1
    else:
        return None
    borders = [match.span() for match in BORDER.finditer(text, first)]
    starts = [first, *(end - 1 for _, end in borders)]
    ends = [*(start + 1 for start, _ in borders), len(text)]
    view = memoryview(text)
    events: list[Any] = [view[a:b] for a, b in zip(starts, ends)]
    end = _first_object(text, starts[-1]) or _repaired_end(text, starts[-1])
    events[-1:] = [view[starts[-1] : end]] if end else []
    remainder = text[end or starts[-1] :]
    if not end and remainder.strip(b" \t\r\n]}"):
        lost["events at a place where the file is cut off"] = 1
    facts = _object(text[: begin.start()].rstrip(b" \t\r\n,") + b"}") if begin else {}
    after = remainder.lstrip(b" \t\r\n").removeprefix(b"]").lstrip(b" \t\r\n,")
    return Document(facts | _object(b"{" + after) if end else facts, events)


def _first_object(text: bytes, start: int) -> int:
    """Return the end of the first object after `start`; 0 if it is incomplete."""
    plain = text[start:].decode("latin-1")  # a character is a byte, which is enough to find the end
    first = len(plain) - len(plain.lstrip(" \t\r\n"))
    try:
        value, length = json.JSONDecoder(strict=False).raw_decode(plain, first)
    except (ValueError, RecursionError):
        return 0
    return start + length if isinstance(value, dict) else 0


def _repaired_end(text: bytes, start: int) -> int:
    """Return the end of the last event of a list if a repair makes it an object; 0 if it is incomplete."""
    for match in islice(_LIST_ENDS.finditer(text, start, start + _LONGEST), _TRIES):
        if decode_one(_EVENT, text[start : match.start() + 1]) is not None:
            return match.start() + 1
    return 0


def _object(text: bytes) -> dict[str, Any]:
    """Decode a text as an object, with repairs; return an empty one for anything else."""
    decoder = msgspec.json.Decoder(dict[str, Any])
    return decode_one(decoder, text) or {}
