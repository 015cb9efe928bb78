# SPDX-License-Identifier: Apache-2.0
"""What is wrong with traces in the wild, one case each: what is read, and what is counted as lost."""

from __future__ import annotations

import gzip
import json
import zlib
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch.profiler import profile, record_function

from pyprof.core.errors import FormatError
from pyprof.core.model import NO_DIRECTION, Trace
from pyprof.parse import loader
from pyprof.parse.join import nest_spans
from pyprof.parse.rows import rows
from tests import kineto
from tests.kineto import annotation, kernel, launch, op


def names(trace: Trace, table: str) -> list[str]:
    found = getattr(trace, table)
    return [trace.strings[code] for code in (found.text if table == "ranges" else found.name)]


def text(events: list[Any], **facts: Any) -> str:
    return json.dumps(kineto.document(events, **facts))


# --- 1. quotes in names


@pytest.mark.parametrize("name", ['say "hi"', '"', 'a "b", c', '"quoted"', 'end"', 'x\\"y', '{"k": [1, "v"]}'])
def test_a_quote_in_a_name_as_torch_writes_it(name: str, tmp_path: Path) -> None:
    path = tmp_path / "trace.json"
    with profile(record_shapes=True) as recording:
        with record_function(name):
            torch.ones(2) + 1
        torch.ones(3).sum()
    recording.export_chrome_trace(str(path))
    trace = loader.load(path)
    events = recording.profiler.kineto_results.events()  # type: ignore[union-attr]
    # torch writes a backslash as a slash.
    expected = [event.name().replace("\\", "/") for event in events if event.name() != "PyTorch Profiler (0)"]
    assert trace.lost == {}
    assert sorted(names(trace, "ranges") + names(trace, "ops")) == sorted(expected)
    assert name.replace("\\", "/") in expected


@pytest.mark.parametrize("name", ['say "hi"', 'a "b" c', '"', "'", 'f("x")', 'a "b", "c": d'])
def test_quotes_that_are_not_escaped(name: str, tmp_path: Path) -> None:
    events = [annotation("@@", 1000, 5000), op("aten::mm", 2000, 3000, seq=4), op("aten::add", 6000, 7000)]
    for escaped in ("", r"\"\\"):  # of two quotes in a name one may be escaped
        path = kineto.write_text(tmp_path / "trace.json", text(events).replace("@@", escaped + name))
        trace = loader.load(path)
        assert names(trace, "ranges") == [json.loads(f'"{escaped}"') + name]
        assert names(trace, "ops") == ["aten::mm", "aten::add"]
        assert trace.lost == {}


def test_a_quote_in_an_argument(tmp_path: Path) -> None:
    events = [op("aten::mm", 2000, 3000, note="@@", seq=4), op("aten::add", 6000, 7000)]
    path = kineto.write_text(tmp_path / "trace.json", text(events).replace("@@", 'a "b" c'))
    trace = loader.load(path)
    assert (names(trace, "ops"), trace.lost) == (["aten::mm", "aten::add"], {})
    assert trace.ops.seq.take(np.array([0])).values.tolist() == [4]


# --- 2. control characters, 3. words for "no number"


def test_control_characters_are_blanks(tmp_path: Path) -> None:
    events = [annotation("@@", 1000, 5000), op("aten::mm", 2000, 3000)]
    path = kineto.write_text(tmp_path / "trace.json", text(events).replace("@@", "a\x01b\nc\td\x1be\x00"))
    trace = loader.load(path)
    assert (names(trace, "ranges"), names(trace, "ops"), trace.lost) == (["a b c d e "], ["aten::mm"], {})


@pytest.mark.parametrize("word", ["N/A", "NaN", "Infinity", "-Infinity", "nan", "-inf", "-nan", "n/a"])
def test_words_for_no_number_are_missing_numbers(word: str, tmp_path: Path) -> None:
    events = [
        op("aten::mm", 1000, 4000),
        launch(2000, 3000, 7),
        kernel("gemm", 5000, 6000, 7),
        op("b", 7000, 8000),
    ]
    events[2]["args"] |= {"est. achieved occupancy %": "@@", "registers per thread": 32, "grid": ["@@", 1, 1]}
    path = kineto.write_text(tmp_path / "trace.json", text(events).replace('"@@"', word))
    trace = loader.load(path)
    assert (len(trace.ops), len(trace.gpu), trace.lost) == (2, 1, {})
    assert not trace.gpu.occupancy.mask().any()
    assert not trace.gpu.grid.mask().any()
    assert trace.gpu.registers.values.tolist() == [32]
    assert [site.ops for site in rows(trace).sites] == [("aten::mm",)]


# --- 4. files that end anywhere

SMALL = [op("aten::mm", 1000, 4000, seq=2), op("aten::add", 5000, 6000), annotation("a } , { b", 7000, 8000),
         op("aten::t", 8000, 8500, **{"Input Dims": [[1, 2], []], "note": "}, {"})]  # fmt: skip


def ends(whole: str) -> list[tuple[int, str]]:
    """Where each event ends, and its name."""
    out, at = [], whole.index("[") + 1
    for _ in SMALL:
        event, at = json.JSONDecoder().raw_decode(whole, whole.index("{", at))
        out.append((at, event["name"]))
    return out


def check(path: Path, expected: list[str]) -> None:
    if not [name for name in expected if name.startswith("aten")]:
        with pytest.raises(FormatError):
            loader.load(path)
        return
    trace = loader.load(path)
    assert sorted(names(trace, "ops") + names(trace, "ranges")) == sorted(expected)


@pytest.mark.parametrize("separators", [(", ", ": "), (",", ":")])
def test_every_event_before_a_cut_is_there(separators: tuple[str, str], tmp_path: Path) -> None:
    whole = json.dumps(kineto.document(SMALL), separators=separators)
    last = ends(whole)
    near = (end + more for end, _ in last for more in (-1, 0, 1, 2))
    for size in sorted({*range(1, len(whole) + 1, 5), *near}):
        path = kineto.write_text(tmp_path / "trace.json", whole[:size])
        check(path, [name for end, name in last if end <= size])


def test_every_event_before_a_cut_of_an_archive_is_there(tmp_path: Path) -> None:
    whole = json.dumps(kineto.document(SMALL))
    packed, last = gzip.compress(whole.encode(), mtime=0), ends(whole)
    for size in range(1, len(packed) + 1):
        given = zlib.decompressobj(zlib.MAX_WBITS | 16).decompress(packed[:size])
        path = tmp_path / "trace.json.gz"
        path.write_bytes(packed[:size])
        check(path, [name for end, name in last if end <= len(given)])


def test_an_archive_with_a_wrong_byte_is_read_up_to_it(tmp_path: Path) -> None:
    whole = json.dumps(kineto.document(SMALL)).encode()
    packed = bytearray(gzip.compress(whole, 0, mtime=0))  # stored: bytes stay where they are
    packed[-6] ^= 1  # the checksum
    path = tmp_path / "trace.json.gz"
    path.write_bytes(bytes(packed))
    trace = loader.load(path)
    assert len(trace.ops) == 3
    assert trace.lost == {"ends of a compressed file that is cut off or damaged": 1}


# --- 6. to 10. what is not there, and what is there in other ways


def test_a_list_without_a_document_around(tmp_path: Path) -> None:
    trace = loader.load(kineto.write_text(tmp_path / "trace.json", json.dumps(kineto.training())))
    assert (len(trace.ops), len(trace.launches), len(trace.gpu), trace.lost) == (8, 5, 5, {})


def without(*categories: str) -> list[Any]:
    return [event for event in kineto.training() if event.get("cat") not in categories]


def test_without_steps_operators_or_launches(tmp_path: Path) -> None:
    path = tmp_path / "trace.json"
    trace = loader.load(kineto.write(path, without("user_annotation")))
    assert (len(trace.steps), len(trace.gpu), trace.lost) == (0, 5, {})
    trace = loader.load(kineto.write(path, without("cuda_runtime")))
    made = rows(trace)
    assert made.lost == {"GPU events without a launch record (kept)": 4}
    assert [site.direction for site in made.sites] == [NO_DIRECTION]
    trace = loader.load(kineto.write(path, without("cpu_op", "python_function", "user_annotation")))
    assert (len(trace.ops), len(trace.gpu)) == (0, 5)
    assert [made.names[name] for name in rows(trace).name] == [
        "gemm",
        "dgrad",
        "ncclDevKernel_AllReduce",
        "stray",
    ]
    only = [event for event in kineto.training() if event.get("cat") == "kernel"]
    trace = loader.load(kineto.write(path, only))
    assert (len(trace.gpu), len(trace.processes), len(rows(trace))) == (4, 1, 4)


def test_a_kernel_without_a_launch_is_kept_and_counted(tmp_path: Path) -> None:
    made = rows(loader.load(kineto.write(tmp_path / "trace.json", kineto.training())))
    stray = [row for row, name in enumerate(made.name) if made.names[name] == "stray"]
    assert made.lost == {"GPU events without a launch record (kept)": 1}
    assert made.sites[made.site[stray[0]]].ops == ()
    assert not made.launch_start.mask()[stray[0]]


def test_processes_and_threads_with_names_for_numbers(tmp_path: Path) -> None:
    events = [
        op("aten::a", 1000, 4000, pid="7", tid="25738"), launch(2000, 3000, 1) | {"pid": 7, "tid": 25738},
        op("aten::b", 1000, 4000, pid="python", tid="main thread"), op("aten::c", 5000, 6000, pid="", tid=""),
        kernel("gemm", 3000, 4000, 1) | {"pid": 0, "tid": "stream 9"},
    ]  # fmt: skip
    del events[-1]["args"]["stream"], events[-1]["args"]["device"]
    trace = loader.load(kineto.write(tmp_path / "trace.json", events))
    pids = [trace.processes[thread.process].pid for thread in trace.threads]
    assert len({(pid, thread.tid) for pid, thread in zip(pids, trace.threads)}) == 3
    assert (7, 25738) in [(pid, thread.tid) for pid, thread in zip(pids, trace.threads)]
    assert (trace.gpu.device.values.tolist(), trace.gpu.stream.values.tolist()) == ([0], [9])
    assert names(trace, "ops") == ["aten::a", "aten::b", "aten::c"] or len(trace.ops) == 3
    # Marks of the viewer make no process.
    assert [p.pid for p in loader.load(kineto.write(tmp_path / "t", kineto.training())).processes] == [kineto.PID]


def test_a_stream_with_the_number_of_a_thread(tmp_path: Path) -> None:
    events = [
        op("aten::mm", 1000, 4000), launch(2000, 3000, 1), op("aten::add", 5000, 6000),
        kernel("gemm", 2500, 5500, 1, stream=kineto.TID, device=kineto.PID),
    ]  # fmt: skip
    trace = loader.load(kineto.write(tmp_path / "trace.json", events))
    assert len(trace.threads) == 1
    assert trace.gpu.stream.values.tolist() == [kineto.TID]
    assert [site.ops for site in rows(trace).sites] == [("aten::mm",)]


def rounded(ops: list[tuple[str, int, int]], path: Path) -> Trace:
    """A trace with whole microseconds, as until 2024."""
    events = [op(name, start * 1000, end * 1000) for name, start, end in ops]
    for event in events:
        event["ts"], event["dur"] = int(event["ts"]), int(event["dur"])
    return loader.load(kineto.write(path, events))


def test_neighbours_that_overlap_by_rounding_stay_neighbours(tmp_path: Path) -> None:
    trace = rounded([("aten::a", 10, 21), ("aten::b", 20, 30), ("aten::c", 30, 41)], tmp_path / "trace.json")
    made = rows(trace)
    assert (made.duration.tolist(), made.lost) == ([10_000, 10_000, 11_000], {})
    assert nest_spans(trace).parent.tolist() == [-1, -1, -1]


def test_a_child_that_ends_later_by_rounding_stays_a_child(tmp_path: Path) -> None:
    trace = rounded([("aten::a", 10, 20), ("aten::b", 12, 21), ("aten::c", 30, 41)], tmp_path / "trace.json")
    made = rows(trace)
    assert nest_spans(trace).parent.tolist() == [-1, 0, -1]
    assert made.duration.tolist() == [2_000, 8_000, 11_000]
    assert made.lost == {}
    late = rounded([("aten::a", 10, 20), ("aten::b", 12, 22)], tmp_path / "late.json")
    assert rows(late).lost == {"ranges that overlap their parent's end (cut there, kept)": 1}


def test_overlap_of_a_microsecond_is_no_rounding_where_times_have_nanoseconds(tmp_path: Path) -> None:
    events = [op("aten::a", 10_001, 21_000), op("aten::b", 20_000, 30_000)]
    trace = loader.load(kineto.write(tmp_path / "trace.json", events))
    assert nest_spans(trace).parent.tolist() == [-1, 0]


def test_the_rank_is_known_if_the_trace_tells(tmp_path: Path) -> None:
    told = {"rank": 3, "world_size": 8, "backend": "nccl"}
    for facts, rank in (({}, None), ({"distributedInfo": told}, 3), ({"distributedInfo": {}}, None)):
        trace = loader.load(kineto.write(tmp_path / "trace.json", kineto.training(), **facts))
        assert [process.rank for process in trace.processes] == [rank]
        assert trace.meta.get("distributed.world_size") == ("8" if rank else None)
        assert len(trace.gpu) == 5


# --- values that are missing or not quoted, paths of Windows, events that had not ended


@pytest.mark.parametrize(
    ("written", "group"),
    [
        ('"Process Group Description": ,', None), ('"Process Group Description": default_pg,', None),
        ('"Process Group Name": mesh_tp, "x": ,', "mesh_tp"), ('"Process Group Name": dp, fsdp,', "dp, fsdp"),
        ('"comm": 0x7f12aa,', None), ('"Process Group Ranks": [0, , 1],', None), ('"weight": 1.,', None),
    ],
)  # fmt: skip
def test_a_missing_or_unquoted_value_costs_itself_only(written: str, group: str | None, tmp_path: Path) -> None:
    """The kernel of a collective takes 400 us, one beside it 20 us."""
    fields = {"Collective name": "allreduce", "In msg nelems": 8, "Out msg nelems": 8, "dtype": "Float"}
    nccl = kernel("ncclDevKernel_AllReduce", 150_000, 550_000, 1)
    nccl["args"] |= fields
    events = text([launch(100_000, 110_000, 1), launch(120_000, 130_000, 2), nccl, kernel("k", 600_000, 620_000, 2)])
    broken = events.replace('"Collective name"', f'{written} "Collective name"')
    assert broken != events
    with pytest.raises(json.JSONDecodeError):
        json.loads(broken)
    trace = loader.load(kineto.write_text(tmp_path / "trace.json", broken))
    assert trace.lost == {}
    assert (trace.gpu.end - trace.gpu.start).tolist() == [400_000, 20_000]
    assert [(one.name, one.received, one.group) for one in trace.collectives.what] == [("all_reduce", 32, group)]


def test_a_time_that_is_missing_is_counted(tmp_path: Path) -> None:
    events = text([op("aten::mm", 1000, 2000), op("aten::add", 3000, 4000)]).replace('"ts": 3.0', '"ts": ')
    trace = loader.load(kineto.write_text(tmp_path / "trace.json", events))
    assert (names(trace, "ops"), trace.lost) == (["aten::mm"], {"events without a time or a length": 1})


@pytest.mark.parametrize(
    "path",
    [r"app\training\new_model.py", r"C:\Users\me\unet\build.py", r"D:\beef\ubeef\r.py", r"a\b\f\n\t.py"],
)
def test_paths_of_windows_whose_backslashes_are_not_escaped(path: str, tmp_path: Path) -> None:
    torch_path = r"lib\site-packages\torch\nn\functional.py"
    events = [
        kineto.function("@outer", 900, 3000), kineto.function("@inner", 950, 2900), op("aten::mm", 1000, 2000),
        annotation("say \n it", 4000, 5000),
    ]  # fmt: skip
    written = text(events).replace("@outer", f"{path}(219): run_uxd").replace("@inner", f"{torch_path}(9): linear")
    trace = loader.load(kineto.write_text(tmp_path / "trace.json", written))
    assert trace.lost == {}
    assert [trace.stacks[number].frames for number in trace.ops.stack.tolist()] == [(f"{path}:219",)]
    assert names(trace, "ranges") == ["say \n it"] or r"\U" in path or r"\m" in path  # JSON otherwise


def test_a_stack_of_windows_in_an_event(tmp_path: Path) -> None:
    stack = r"C:\env\lib\site-packages\torch\nn\functional.py(1690): linear;C:\net.py(7): forward;C:\proj\t.py(3): m"
    written = text([op("aten::mm", 1000, 2000, **{"Call stack": "@"})]).replace('"@"', f'"{stack}"')
    trace = loader.load(kineto.write_text(tmp_path / "trace.json", written))
    assert [one.frames for one in trace.stacks] == [(r"C:\proj\t.py:3", r"C:\net.py:7")]


def test_escaped_backslashes_stay_as_they_are(tmp_path: Path) -> None:
    trace = loader.load(
        kineto.write(tmp_path / "t.json", [kineto.function("a\\new.py(1): f", 900, 3000), op("aten::mm", 1000, 2000)])
    )
    assert [one.frames for one in trace.stacks] == [("a\\new.py:1",)]


def unfinished(event: dict[str, Any], length: float = -1) -> dict[str, Any]:
    return event | {"dur": length}


def test_events_that_had_not_ended_last_to_the_end_of_the_file(tmp_path: Path) -> None:
    """The file ends with a kernel, at 9 us."""
    events = [
        unfinished(annotation("ProfilerStep#4", 500, 0)), unfinished(op("aten::linear", 1000, 0)),
        op("aten::mm", 1500, 2500), unfinished(launch(1600, 0, 1), -0.001), kernel("k", 8000, 9000, 1),
        unfinished(op("aten::odd", 3000, 0), -7), unfinished(kernel("k", 3000, 4000, 2)),
    ]  # fmt: skip
    trace = loader.load(kineto.write(tmp_path / "trace.json", events))
    ended = "operators, ranges and calls that had not ended (taken to last to the end of the file, kept)"
    assert trace.lost == {ended: 3, "events without a time or a length": 2}
    assert trace.steps.end.tolist() == [8500]
    assert dict(zip(names(trace, "ops"), trace.ops.end.tolist())) == {"aten::linear": 8500, "aten::mm": 2000}
    assert rows(trace).launch_end.values.tolist() == [8500]
