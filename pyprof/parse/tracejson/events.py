# SPDX-License-Identifier: Apache-2.0
"""Events out of the text of a trace, decoded only as far as they are needed.

A file is cut into events without looking into them; `Event` has the fields that say what an event is, and the others
(`args`, the times) stay text until somebody asks. A text that is not JSON is cut at what looks like the border of two
events, each is repaired by itself, and what stays unreadable is counted. Faults that are known from files of torch are
quotes and control characters in names, bare N/A and NaN for numbers, and files of killed programs that end anywhere.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from contextlib import suppress
from typing import Any, NamedTuple, TypeVar

import msgspec

CHUNK = 1 << 14  # events handled at a time
_AT_ONCE = 1 << 28  # bytes whose events are decoded together: they take three times as much
UNREADABLE = "events that could not be read"
# What decoding raises: no JSON, other types than expected, bytes that are not UTF-8, brackets as deep as a stack.
FAULTS = (msgspec.MsgspecError, UnicodeError, RecursionError)
_NOTHING = msgspec.Raw(b"")


class Event(msgspec.Struct, gc=False):
    """One event. Times are microseconds as they stand in the text."""

    ph: str = ""
    cat: str | None = None
    name: str = ""
    pid: Any = None
    tid: Any = None
    ts: msgspec.Raw = _NOTHING
    dur: msgspec.Raw = _NOTHING
    id: Any = None
    args: msgspec.Raw = _NOTHING


class Document(NamedTuple):
    """A trace: what stands beside the events, and the events, decoded or as text."""

    facts: dict[str, Any]
    events: list[Any]


_Type = TypeVar("_Type")
_FACTS = msgspec.json.Decoder(dict[str, msgspec.Raw])
_LIST = msgspec.json.Decoder(list[msgspec.Raw])
_EVENT, _EVENTS = msgspec.json.Decoder(Event), msgspec.json.Decoder(list[Event])


def document(text: bytes, lost: dict[str, int]) -> Document | None:
    """Cut a text into events; None if there is no list of events in it."""
    text = text.removeprefix(b"\xef\xbb\xbf")
    try:
        if text[:4096].lstrip()[:1] == b"[":
            return Document({}, events_of(text))
        parts = _FACTS.decode(text)
        if "traceEvents" in parts:
            events = events_of(parts.pop("traceEvents"))
            return Document({name: msgspec.json.decode(part) for name, part in parts.items()}, events)
    except FAULTS:
        pass
    return _torn(text, lost)


def events_of(text: Any) -> list[Any]:
    """The events of a list: decoded where that fits, and none of them is odd; else as text. Raises one of `FAULTS` for
    what is no list."""
    if len(text) <= _AT_ONCE:
        with suppress(*FAULTS):
            return _EVENTS.decode(text)
    return _LIST.decode(text)


def chunks(found: Document, lost: dict[str, int]) -> Iterator[list[Event]]:
    """The events, some at a time; they are taken out of the document. What is no event is counted."""
    left = found.events
    while left:
        some = left[:CHUNK]
        del left[:CHUNK]
        yield some if isinstance(some[0], Event) else _decoded(some, lost)


def _decoded(texts: Sequence[Any], lost: dict[str, int]) -> list[Event]:
    try:
        return _EVENTS.decode(b"[" + b",".join(texts) + b"]")
    except FAULTS:
        out = []
        for text in texts:
            event = one(_EVENT, bytes(text))
            if event is None:
                lost[UNREADABLE] = lost.get(UNREADABLE, 0) + 1
            else:
                out.append(event)
        return out


def arguments(
    decoder: msgspec.json.Decoder[list[_Type]], events: Sequence[Event], empty: _Type
) -> list[_Type]:
    """The arguments of events, decoded; `empty` for those that have none or none of the types that are expected."""
    texts = [event.args if len(event.args) > 1 else b"{}" for event in events]
    try:
        return decoder.decode(b"[" + b",".join(texts) + b"]")
    except FAULTS:
        out = []
        for text in texts:
            found = one(decoder, b"[" + bytes(text) + b"]")
            out.append(found[0] if found else empty)
        return out


def one(decoder: msgspec.json.Decoder[_Type], text: bytes) -> _Type | None:
    """Decode one text, repaired if need be and if it is no longer than an event can be: a repair takes memory."""
    try:
        return decoder.decode(text)
    except FAULTS:
        if len(text) > _LONGEST:
            return None
        text = _plain(text)
    for repair in (bytes, _named, _quoted):
        try:
            return decoder.decode(repair(text))
        except FAULTS:
            continue
    return None


# --- repair

_LONGEST = 1 << 20  # bytes of an event that is repaired

_KEY = rb'"(?:ph|cat|name|pid|tid|ts|dur|id|s|bp|args|cname)"\s*:'
BORDER = re.compile(rb"\}\s*,\s*\{(?=\s*(?:\}|" + _KEY + rb"))")
# Up to the next name at most: a text of names alone would take forever.
_NAME = re.compile(rb'("name"\s*:\s*")((?:(?!"name"\s*:).)*?)(?="\s*(?:\}|,\s*' + _KEY + rb"))", re.S)
LIST_BEGINS = re.compile(rb'"traceEvents"\s*:\s*\[')
_NO_NUMBER = re.compile(rb"(:\s*|[\[,]\s*)(?:N/A|n/a|-?NaN|-?nan|-?Infinity|-?inf)(?=\s*[,}\]])")
# A backslash; a character in two halves, which are 12 bytes; half a character, which is 6.
_ESCAPES = re.compile(rb"\\\\|\\u[dD][89abAB]\w\w\\u[dD][c-fC-F]\w\w|\\u[dD][89a-fA-F]\w\w")
_CONTROL = bytes(range(32))
_AS_SPACE = bytes.maketrans(_CONTROL, b" " * 32)


def _plain(text: bytes) -> bytes:
    """Text without control characters, foreign words for "no number", and what is not UTF-8 or half a character."""
    text = text.translate(_AS_SPACE).decode("utf-8", "replace").encode()
    text = _ESCAPES.sub(lambda found: b"\\ufffd" if len(found[0]) == 6 else found[0], text)
    return _NO_NUMBER.sub(rb"\1null", text)


def _named(text: bytes) -> bytes:
    """Text whose quotes inside of a name are escaped: an event's name ends where another of its fields begins.

    >>> _named(b'{"name": "{"k": 1}", "ts": 1}')
    b'{"name": "{\\\\"k\\\\": 1}", "ts": 1}'
    """

    def escaped(quote: re.Match[bytes]) -> bytes:
        return b"\\" + quote[0] if quote[0] == b'"' else quote[0]

    return _NAME.sub(lambda found: found[1] + _QUOTE.sub(escaped, found[2]), text)


def _quoted(text: bytes) -> bytes:
    """Text whose quotes inside of strings are escaped.

    A quote ends a string if what follows it goes on like JSON: a colon, a closing bracket, or a comma with a new value.

    >>> _quoted(b'{"name": "say "hi", twice", "ts": 1}')
    b'{"name": "say \\\\"hi\\\\", twice", "ts": 1}'
    """
    out, last, inside = [], 0, False
    for match in _QUOTE.finditer(text):
        place = match.start()
        if match[0] != b'"':
            continue
        if not inside:
            inside = True
        elif _GOES_ON.match(text, place + 1):
            inside = False
        else:
            out += [text[last:place], b"\\"]
            last = place
    return b"".join([*out, text[last:]])


_QUOTE = re.compile(rb'\\.|"', re.S)
_GOES_ON = re.compile(rb'\s*(?:[:}\]]|,\s*(?:["{\[\-0-9]|true|false|null))')


def _torn(text: bytes, lost: dict[str, int]) -> Document | None:
    """Cut a text that is not JSON."""
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
    end = _first_object(text, starts[-1])
    events[-1:] = [view[starts[-1] : end]] if end else []
    rest = text[end or starts[-1] :]
    if not end and rest.strip(b" \t\r\n]}"):
        lost["events at a place where the file is cut off"] = 1
    facts = _object(text[: begin.start()].rstrip(b" \t\r\n,") + b"}") if begin else {}
    after = rest.lstrip(b" \t\r\n").removeprefix(b"]").lstrip(b" \t\r\n,")
    return Document(facts | _object(b"{" + after) if end else facts, events)


def _first_object(text: bytes, start: int) -> int:
    """Where the first object from here on ends; 0 if it is not whole."""
    plain = text[start:].decode("latin-1")  # a character is a byte, which is enough to find the end
    first = len(plain) - len(plain.lstrip(" \t\r\n"))
    try:
        found, length = json.JSONDecoder(strict=False).raw_decode(plain, first)
    except (ValueError, RecursionError):
        return 0
    return start + length if isinstance(found, dict) else 0


def _object(text: bytes) -> dict[str, Any]:
    """A text as an object, repaired; empty if it is none."""
    decoder = msgspec.json.Decoder(dict[str, Any])
    return one(decoder, text) or {}
