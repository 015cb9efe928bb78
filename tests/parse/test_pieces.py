# SPDX-License-Identifier: Apache-2.0
"""A trace that is read in pieces, in one process or several, is the trace that is read as a whole."""

from __future__ import annotations

import dataclasses
import json
import os
import subprocess
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from pyprof.core.errors import FormatError
from pyprof.core.model import Column, Trace
from pyprof.parse import loader, reader_process
from pyprof.parse.tracejson import pieces
from tests import kineto
from tests.kineto import annotation, function, kernel, launch, op

DEVICES = [{"id": 0, "name": "Tesla V100-SXM2-32GB", "numSms": 80}]


def events(steps: int) -> list[kineto.Event]:
    """Events of every kind, so many times; what is known of each differs from step to step."""
    shapes = {"Input Dims": [[2, 3], [3, 4]], "Input type": ["float", "float"]}
    collective = {"Collective name": "allreduce", "In msg nelems": 6, "dtype": "Float"}
    out: list[kineto.Event] = [
        {"ph": "M", "name": "process_name", "pid": kineto.PID, "tid": 0, "ts": 0, "args": {"name": "first"}}
    ]
    for i in range(steps):
        t = i * 100_000
        out += [
            annotation(f"ProfilerStep#{i}", t, t + 90_000),
            function(f"net.py({i % 5}): forward", t + 100, t + 50_000),
            op("aten::mm", t + 1_000, t + 9_000, seq=i, **{"External id": i + 1}, **shapes),
            op(f"aten::op{i % 7}", t + 10_000, t + 19_000, tid=kineto.TID + i % 3),
            op("record_param_comms", t + 20_000, t + 29_000, **collective, Seq=i),
            launch(t + 2_000, t + 3_000, i + 1),
            kernel(f"sgemm_{i % 4}", t + 4_000, t + 8_000, i + 1),
            kernel("ncclKernel", t + 30_000, t + 31_000, 10_000 + i, stream=8),
            kineto.event("odd" if i % 2 else "odder", "x", t, t + 1, 1, 1),
            {"ph": "i", "name": "[memory]", "pid": kineto.PID, "tid": kineto.TID, "ts": t / 1000, "s": "t",
             "args": {"Bytes": 512, "Addr": i, "Device Type": 1, "Device Id": 0}},
            {"ph": "s", "id": i, "cat": "fwdbwd", "name": "fwdbwd", "pid": kineto.PID, "tid": kineto.TID, "ts": t},
        ]  # fmt: skip
        out[-6]["args"] |= collective
    out.append({**out[0], "args": {"name": "last"}})
    out[20]["name"] = 7  # of no known category; now no event
    return out


def same(first: Any, second: Any) -> bool:
    if isinstance(first, Column):
        return same(first.mask(), second.mask()) and same(first.values, second.values)
    if isinstance(first, np.ndarray):
        return first.dtype == second.dtype and np.array_equal(first, second)
    if dataclasses.is_dataclass(first):
        return all(same(getattr(first, f.name), getattr(second, f.name)) for f in dataclasses.fields(first))
    if hasattr(first, "texts"):
        return bool(first.texts == second.texts)
    return bool(first == second)


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """Pieces of a few events, for as many children as there are cores."""
    monkeypatch.setattr(pieces, "PIECE", 4_000)
    monkeypatch.setattr(pieces, "_MIN_BYTES", 1)


def whole(path: Path, monkeypatch: pytest.MonkeyPatch) -> Trace:
    with monkeypatch.context() as patch:
        patch.setattr(pieces, "PIECE", 1 << 30)
        return loader.load(path)


FILES: dict[str, Any] = {
    "trace.json": lambda e: json.dumps(kineto.document(e, deviceProperties=DEVICES)),
    "trace.json.gz": lambda e: json.dumps(kineto.document(e, deviceProperties=DEVICES), indent=1),
    "list.json": lambda e: " " + json.dumps(e, indent=4),
    "behind.json": lambda e: "\ufeff" + json.dumps({"traceEvents": e, "deviceProperties": DEVICES, "a": {"b": [[]]}}),
}  # fmt: skip


@pytest.mark.parametrize(("name", "cores"), [*((name, 1) for name in FILES), ("trace.json.gz", 2)])
def test_pieces_are_the_whole(
    name: str, cores: int, tmp_path: Path, small: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reader_process, "cores", lambda: cores)
    path = kineto.write_text(tmp_path / name, FILES[name](events(150)))
    assert pieces.read(path, {}) is not None
    found = loader.load(path)
    assert same(found, whole(path, monkeypatch))
    assert (len(found.gpu), len(found.ops), len(found.memory), found.processes[-1].name) == (
        300,
        450,
        150,
        "last",
    )
    assert sorted(found.lost.values()) == [1, 74, 75]


@pytest.mark.parametrize(
    "text",
    [
        json.dumps({"traceEvents": events(60), "more": 1})[:-1] + ', "traceEvents": []}',  # the last list counts
        json.dumps({"traceEvents": events(60)})[:-9],
        json.dumps(events(60)).replace('"stream": 8', '"stream": NaN'),
        json.dumps([{**one, "x": [{"name": 1}, {"name": 2}] * 300} for one in events(3)]),  # no event begins there
        json.dumps({"args": {"traceEvents": []}, "traceEvents": events(60)}),
        '"' + " " * 9_000 + '", "ph": 1' + json.dumps(events(60)),
    ],
)
def test_what_is_not_sound_is_read_as_a_whole(text: str, tmp_path: Path, small: None) -> None:
    path = kineto.write_text(tmp_path / "trace.json", text)
    lost: dict[str, int] = {}
    assert pieces.read(path, lost) is None
    assert not lost


def test_names_that_look_like_borders(tmp_path: Path, small: None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reader_process, "cores", lambda: 1)
    several = [{**one, "name": 'a"}, {"ph": "X"'} if i % 3 else one for i, one in enumerate(events(60))]
    path = kineto.write(tmp_path / "trace.json", several)
    assert pieces.read(path, {}) is not None
    assert same(loader.load(path), whole(path, monkeypatch))


def test_a_compressed_text_beyond_what_is_expected(
    tmp_path: Path, small: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = kineto.write(tmp_path / "trace.json.gz", events(60))
    monkeypatch.setattr(pieces.inputs, "largest", lambda size: 10_000)
    with pytest.raises(FormatError, match="holds more than 10000 bytes"):
        loader.load(path)


def test_a_child_that_dies_is_one_sentence(tmp_path: Path, small: None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reader_process, "cores", lambda: 2)
    started: list[subprocess.Popen[bytes]] = []
    start = reader_process.start

    def killed(*args: Any) -> Any:
        started.append(start(*args))
        started[0].kill()
        return started[0]

    monkeypatch.setattr(reader_process, "start", killed)
    path = kineto.write(tmp_path / "trace.json", events(60))
    with pytest.raises(FormatError) as caught:
        loader.load(path)
    assert str(caught.value) == f"{path}: the process that read it ended (-9); memory may be short."


def test_an_interrupt_ends_the_child(tmp_path: Path, small: None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reader_process, "cores", lambda: 2)
    started: list[subprocess.Popen[bytes]] = []
    start = reader_process.start

    def noted(*args: Any) -> Any:
        started.append(start(*args))
        return started[0]

    def interrupted(*args: Any) -> bool:
        raise KeyboardInterrupt

    monkeypatch.setattr(reader_process, "start", noted)
    monkeypatch.setattr(pieces, "_next", interrupted)
    before = len(os.listdir("/proc/self/fd")) if os.path.isdir("/proc/self/fd") else 0
    with pytest.raises(KeyboardInterrupt):
        pieces.read(kineto.write(tmp_path / "trace.json", events(60)), {})
    assert started[0].poll() is not None
    assert len(os.listdir("/proc/self/fd")) == before if before else True
