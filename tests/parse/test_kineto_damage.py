# SPDX-License-Identifier: Apache-2.0
"""Damaged traces: what comes out is a Trace that counts what it lost, or one sentence; in bounded time and memory.

Order, spacing and spelling of the JSON change nothing at all. 60 copies of recordings with PYPROF_LONG=1.
"""

from __future__ import annotations

import gzip
import json
import random
import sqlite3
import time
import tracemalloc
from collections.abc import Callable
from pathlib import Path

import pytest

import pyprof
from pyprof.core import netdict
from pyprof.core.errors import FormatError
from pyprof.core.model import Trace
from pyprof.parse import loader
from pyprof.parse.rows import rows
from pyprof.parse.tracejson import pieces
from tests import kineto
from tests.build import LONG
from tests.cli import parse as main

RECORDINGS = ("nccl_a100_rank0of2.json.gz", "h100_bert_small.json.gz", "mi210_gpu_only.json.gz")


def load(path: Path) -> Trace | str:
    """The trace, or the sentence."""
    try:
        trace = loader.load(path)
        rows(trace)
    except FormatError as error:
        text = str(error)
        assert text.startswith(f"{path}")
        assert "\n" not in text
        return text
    return trace


# --- damage


def cut(text: bytes, rng: random.Random) -> bytes:
    return text[: rng.randrange(1, len(text))]


def flipped(text: bytes, rng: random.Random) -> bytes:
    out = bytearray(text)
    for _ in range(rng.choice((1, 10, 100))):
        out[rng.randrange(len(out))] ^= 1 << rng.randrange(8)
    return bytes(out)


def overwritten(text: bytes, rng: random.Random) -> bytes:
    """Some bytes replaced, dropped, doubled or put in."""
    out = bytearray(text)
    for _ in range(rng.choice((1, 10))):
        at, length = rng.randrange(len(out)), rng.choice((1, 7, 300))
        here = slice(at, at + length)
        out[here] = rng.choice((b"", bytes(length), rng.randbytes(length), bytes(out[here]) * 2))
    return bytes(out)


def without_keys(text: bytes, rng: random.Random) -> bytes:
    """Every tenth event lacks a key of its own or of its arguments."""
    document = json.loads(text, strict=False)
    for event in document["traceEvents"]:
        if rng.random() < 0.1:
            args = event.get("args")
            of = args if isinstance(args, dict) and args and rng.random() < 0.5 else event
            del of[rng.choice([*of])]
    return json.dumps(document).encode()


def shuffled(text: bytes, rng: random.Random) -> bytes:
    document = json.loads(text, strict=False)
    rng.shuffle(document["traceEvents"])
    return json.dumps(document).encode()


DAMAGES: tuple[Callable[[bytes, random.Random], bytes], ...] = (
    cut,
    flipped,
    overwritten,
    without_keys,
    shuffled,
)


def damaged(text: bytes, seed: int) -> tuple[bytes, str]:
    """A damaged copy, of the text or of the archive, and its name."""
    rng = random.Random(seed)
    damage = DAMAGES[seed % len(DAMAGES)]
    if damage in (without_keys, shuffled) or rng.random() < 0.7:
        return damage(text, rng), "trace.json"
    return damage(gzip.compress(text, 1, mtime=0), rng), "trace.json.gz"


def cost(path: Path) -> tuple[float, int]:
    """CPU seconds and the peak of memory of loading a file."""
    begin = time.process_time()
    load(path)
    spent = time.process_time() - begin
    tracemalloc.start()
    try:
        load(path)
        return spent, tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


def survives(text: bytes, seeds: range, folder: Path) -> None:
    # An archive beside an archive: how large the decompressor's buffers are differs between versions of Python.
    intact = {"trace.json": text, "trace.json.gz": gzip.compress(text, 1, mtime=0)}
    allowed = {}
    for name, content in intact.items():
        path = folder / name
        path.write_bytes(content)
        with pytest.MonkeyPatch.context() as patch:  # a damaged trace is read whole, an intact one in pieces
            patch.setattr(pieces, "PIECE", 1 << 30)
            load(path)
            allowed[name] = cost(path)
    for seed in seeds:
        broken, name = damaged(text, seed)
        seconds, memory = allowed[name]
        path = folder / name
        path.write_bytes(broken)
        spent, peak = cost(path)
        if spent > 10 * seconds:  # a busy machine: once more
            spent = min(spent, cost(path)[0])
        # Where every event is repaired by itself it is 8 times the time.
        assert spent < 20 * seconds + 0.05, seed
        assert peak < 3 * memory + (8 << 20), seed  # with buffers that are larger than a small recording


def many(count: int = 12) -> bytes:
    """A small trace of some hundred events: copies of one step, at later and later times."""
    events = []
    for step in range(count):
        for event in json.loads(json.dumps(kineto.training())):
            if "ts" in event and event["ph"] != "M":
                event["ts"] += 100 * step
            args = event.get("args", {})
            for key in ("correlation", "Sequence number", "Ev Idx", "External id"):
                if key in args:
                    args[key] += 1000 * step
            events.append(event)
    return json.dumps(kineto.document(events, baseTimeNanoseconds=1_700_000_000_000_000_000)).encode()


def test_damaged_copies_of_a_small_trace_are_read_or_refused_in_one_sentence(tmp_path: Path) -> None:
    survives(many(), range(10), tmp_path)


@pytest.mark.parametrize("garbage", [b'"}\xff, {\xfe"' * 200_000, b"\xc4" * 3_000_000, b'{"a": [' * 300_000])
def test_garbage_takes_no_memory(garbage: bytes, tmp_path: Path) -> None:
    """As when a wrong bit in an archive makes all that follows something else."""
    text = many()
    path = kineto.write_text(tmp_path / "trace.json", text[: len(text) // 2] + garbage)
    _, peak = cost(path)
    assert peak < 5 * path.stat().st_size + (10 << 20)
    assert len(load(path).ops) > 20


@pytest.mark.long
@pytest.mark.parametrize("place", range(len(RECORDINGS)))
def test_damaged_copies_of_the_recordings(place: int, data: Path, tmp_path: Path) -> None:
    text = gzip.decompress((data / "kineto" / RECORDINGS[place]).read_bytes())
    survives(text, range(place, 60, len(RECORDINGS)), tmp_path)


# --- what must not matter


def state(path: Path) -> tuple[list[str], list[str]]:
    """Lines of net.dict, and the database as SQL, from which all reports are made."""
    lines = [*netdict.lines(rows(loader.load(path)))]
    saved = path.with_suffix(".sqlite")
    pyprof.load(path).save(saved)
    connection = sqlite3.connect(saved)
    # What names the file or says when it was read.
    named = 'INSERT INTO "aggregation"', 'INSERT INTO "meta"'
    dump = [line for line in connection.iterdump() if not line.startswith(named)]
    connection.close()
    saved.unlink()
    return lines, dump


def same(text: bytes, others: dict[str, bytes], folder: Path) -> None:
    path = kineto.write_text(folder / "trace.json", text)
    expected = state(path)
    assert len(expected[0]) > 0
    for name, other in others.items():
        path.write_bytes(other)
        assert state(path) == expected, name


@pytest.mark.counts
def test_the_order_of_events_changes_nothing(tmp_path: Path) -> None:
    text = many(2)
    seeds = range(1, 4) if LONG else range(1)
    same(text, {str(seed): shuffled(text, random.Random(seed)) for seed in seeds}, tmp_path)


def test_of_events_at_one_time_the_recorders_count_decides(tmp_path: Path) -> None:
    """Three operators of length 0 and two of length 100 at one time: the first to begin is around the others."""
    names = ["aten::e", "aten::a", "aten::d", "aten::b", "aten::c"]
    events = [kineto.op(name, 1000, 1100 if i < 2 else 1000, **{"Ev Idx": i}) for i, name in enumerate(names)]
    found = []
    for seed in range(6):
        random.Random(seed).shuffle(events)
        made = rows(loader.load(kineto.write(tmp_path / "trace.json", events)))
        found.append([(made.names[name], int(own)) for name, own in zip(made.name, made.duration)])
    assert found[0][:2] == [("aten::e", 0), ("aten::a", 100)]
    assert [name for name, _ in found[0]] == names
    assert found == found[:1] * 6


@pytest.mark.long
@pytest.mark.counts
def test_spelling_of_the_json_changes_nothing(tmp_path: Path) -> None:
    text = many(2)
    document = json.loads(text)
    lines = json.dumps(document, indent=1)
    spellings = {
        "minified": json.dumps(document, separators=(",", ":")),
        "sorted keys": json.dumps(document, sort_keys=True),
        "BOM, CRLF, escaped": "\ufeff" + lines.replace("\n", "\r\n").replace("aten", "\\u0061ten").replace("/", "\\/"),
    }  # fmt: skip
    if LONG:
        spellings |= {
            "indented": json.dumps(document, indent=4),
            "CRLF": lines.replace("\n", "\r\n"),
            "tabs": json.dumps(document, indent="\t"),
            "BOM": "\ufeff" + lines,
            "blank lines": "\n\n  " + lines + "\n\n",
            "keys in another order": json.dumps({key: document[key] for key in reversed(document)}),
            "escaped": text.decode().replace("aten", "\\u0061ten").replace("/", "\\/"),
        }
    others = {name: spelled.encode() for name, spelled in spellings.items()}
    same(text, others, tmp_path)


def test_archives_give_the_same_whatever_their_name(tmp_path: Path) -> None:
    text = kineto.write(tmp_path / "plain", kineto.training()).read_bytes()
    (tmp_path / "zipped").write_bytes(gzip.compress(text))
    (tmp_path / "members").write_bytes(gzip.compress(text[:100]) + gzip.compress(text[100:]))
    found = [[*netdict.lines(rows(loader.load(tmp_path / name)))] for name in ("plain", "zipped", "members")]
    assert found[0] == found[1] == found[2]


# --- single faults

KEYS = ("ph", "cat", "name", "pid", "tid", "ts", "dur", "args")
ARGUMENTS = (
    "External id", "Ev Idx", "Sequence number", "Fwd thread id", "Input Dims", "Input type", "Input Strides",
    "Concrete Inputs", "correlation", "device", "stream", "context", "grid", "block", "bytes", "Collective name",
    "dtype", "In msg nelems", "Group size", "Addr", "Bytes", "Device Type", "Device Id", "Total Allocated",
    "Call stack", "registers per thread", "shared memory", "est. achieved occupancy %", "graph node id",
)  # fmt: skip
VALUES = (
    '"7"', "null", "[[1, [2]]]", str(1 << 70), "-1", "NaN", "1e400", '""', "{}", "[]", "true", "2.5", '"a\\u0000b"',
    '"\\ud800"', "N/A", "-Infinity", "1" * 400, '"' + "9" * 40 + '"', str((1 << 63) - 1), str(-(1 << 63)), "1e30",
)  # fmt: skip


@pytest.mark.counts
@pytest.mark.parametrize("value", [None, *VALUES], ids=str)
def test_a_key_that_is_absent_or_of_another_kind(value: str | None, tmp_path: Path) -> None:
    """In every event, one key after the other. Those with a name, times and a place are there whatever the rest is."""
    path = tmp_path / "trace.json"
    which = [None, *VALUES].index(value)
    first = 1 + which % 5 if LONG else 0
    for key in (*KEYS, *ARGUMENTS)[(which + first) % 6 :: 6]:
        events = json.loads(json.dumps(kineto.training()))
        for event in events:
            of = event if key in KEYS else event.get("args", {})
            of.pop(key, None)
            if value is not None and (key in KEYS or "args" in event):
                of[key] = "@@"
        text = json.dumps(kineto.document(events))
        path.write_bytes(text.replace('"@@"', value or "").encode("utf-8", "surrogatepass"))
        found = load(path)
        if key in ARGUMENTS:
            assert isinstance(found, Trace), key
            assert (len(found.ops), len(found.launches), len(found.gpu), len(found.functions)) == (
                8,
                5,
                5,
                2,
            ), key


@pytest.mark.parametrize("value", VALUES)
def test_facts_beside_the_events_of_another_kind(value: str, tmp_path: Path) -> None:
    names = (
        "baseTimeNanoseconds",
        "deviceProperties",
        "distributedInfo",
        "schemaVersion",
        "host_name",
        "trace_id",
    )
    for name in names[VALUES.index(value) % 2 :: 2]:
        text = json.dumps(kineto.document(kineto.training(), **{name: "@@"})).replace('"@@"', value)
        path = kineto.write_text(tmp_path / "trace.json", text.encode("utf-8", "surrogatepass"))
        found = load(path)
        assert isinstance(found, Trace), name
        assert (len(found.ops), len(found.gpu)) == (8, 5)


def test_the_last_of_two_equal_keys_counts(tmp_path: Path) -> None:
    text = json.dumps(kineto.document([kineto.op("aten::mm", 1000, 3000)]))
    twice = text.replace('"ts": 1.0', '"ts": 7.0, "ts": 1.0').replace('"name"', '"name": "x", "name"', 1)
    found = [load(kineto.write_text(tmp_path / "trace.json", each)) for each in (text, twice)]
    assert [[t.strings[t.ops.name[0]], int(t.ops.end[0]), t.t0] for t in found] == [["aten::mm", 2000, 1000]] * 2


@pytest.mark.parametrize(
    "deep", ["[" * 100_000 + "]" * 100_000, '{"a":' * 100_000 + "1" + "}" * 100_000, "[" * 100_000]
)
def test_brackets_without_end_lose_one_event(deep: str, tmp_path: Path) -> None:
    text = json.dumps(kineto.document([kineto.op("aten::mm", 1000, 3000), kineto.op("aten::add", 4000, 5000)]))
    path = kineto.write_text(tmp_path / "trace.json", text.replace('"args": {}', f'"args": {deep}', 1))
    found = load(path)
    assert [found.strings[code] for code in found.ops.name] == ["aten::add"]
    assert found.lost == {"events that could not be read": 1}


def test_a_name_of_10_megabytes(tmp_path: Path) -> None:
    name = "a" * 10_000_000
    path = kineto.write(tmp_path / "trace.json", [kineto.op(name, 1000, 3000), kineto.op("aten::add", 4000, 5000)])
    found = load(path)
    assert [len(found.strings[code]) for code in found.ops.name] == [10_000_000, 9]


@pytest.mark.parametrize("name", ["a\\u0000b", "\\ud800", "\\ud83d\\ude00", "a\\\\", "\\u2028"])
def test_odd_characters_in_a_name(name: str, tmp_path: Path) -> None:
    text = json.dumps(kineto.document([kineto.op("@@", 1000, 3000), kineto.op("aten::add", 4000, 5000)]))
    path = kineto.write_text(tmp_path / "trace.json", text.replace("@@", name))
    profile = pyprof.load(path)
    assert len(profile.table) == 2
    profile.save(tmp_path / "saved.sqlite")
    assert [*profile.report("detail")["name"]][-1] == "add"


@pytest.mark.parametrize(
    "text",
    [b"{", b"[", b"{}", b"[]", b'{"traceEvents": []}', b'{"traceEvents": 7}', b'{"traceEvents": [7, "x", null]}',
     b'{"a": 1}', b'[{"a": 1}]', b'{"traceEvents": {"ph": "X"}}', b"null", b"{]", b'{"traceEvents": [{"ph": "X"}]'],
)  # fmt: skip
def test_the_command_says_one_sentence_and_writes_nothing(
    text: bytes, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path, out = kineto.write_text(tmp_path / "trace.json", text), tmp_path / "net.dict"
    assert main([str(path), "-o", str(out)]) == 1
    told = capsys.readouterr()
    assert told.out == ""
    assert told.err.startswith(f"parse.py: {path}")
    assert len(told.err.strip().splitlines()) == 1
    assert not out.exists()


def test_the_command_on_a_damaged_trace(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """What is left is written, what is lost is told."""
    text = json.dumps(kineto.document(kineto.training())).encode()
    path = kineto.write_text(tmp_path / "trace.json", text[: text.index(b'"gpu_memcpy"')])
    assert main([str(path)]) in (None, 0)
    told = capsys.readouterr()
    assert len(told.out.splitlines()) == 4  # the kernels before the cut
    assert "1 events at a place where the file is cut off" in told.err


@pytest.mark.parametrize(
    "part",
    [
        '{"name": "',
        "}, {",
        '"',
        "[",
        *(pytest.param(part, marks=pytest.mark.long) for part in ('"name": "', "}{", "\\", '{"ph": "X", "name": "a')),
    ],
)
def test_time_grows_with_the_length_of_garbage(part: str, tmp_path: Path) -> None:
    """Ten times the garbage takes no hundred times the time, whether or not something ends it."""
    path, times = tmp_path / "trace.json", []
    whole = json.dumps(kineto.document([kineto.op("aten::add", 500, 900), kineto.op("@@", 1000, 3000)]))
    for count in (6_000, 60_000):
        begin = time.process_time()
        for end in (whole.partition("@@")[2], "", ', "x": }, {"ph": "X"}]}'):
            path.write_text(whole.partition("@@")[0] + part * count + end)
            load(path)
        times.append(time.process_time() - begin)
    assert times[1] < 30 * times[0] + 0.3
