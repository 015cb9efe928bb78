# SPDX-License-Identifier: Apache-2.0
"""Garbage collection and torch.save as ranges with the line that waits."""

from __future__ import annotations

import gc
import io
import pickle
import sys
from pathlib import Path

import pytest
import torch

import pyprof
from pyprof.capture.instrument import interruptions
from pyprof.parse.formats import capture

FILE = Path(__file__).name


def ranges(path: Path) -> dict[str, int]:
    """Texts of the ranges of a recording, with their times in ns."""
    table = pyprof.load(path).report("ranges")
    return dict(zip(table["path"], table["host_total_ns"]))


def test_a_long_collection_and_a_save_have_their_lines(tmp_path: Path) -> None:
    kept = [[[i] for i in range(10)] for _ in range(30_000)]  # what a collection looks through
    state = {"w": torch.ones(1 << 16)}
    with pyprof.profile(str(tmp_path / "net.sqlite")):
        torch.ones(3).add(1)
        gc.collect()
        collected = sys._getframe().f_lineno - 1
        torch.save(state, tmp_path / "w.pt")
        torch.save(state, io.BytesIO())
        saved = sys._getframe().f_lineno - 1
    del kept
    found = ranges(tmp_path / "net.sqlite")
    assert found[f"Python GC ({FILE}:{collected})"] > 200_000
    assert {f"torch.save ({FILE}:{line})" for line in (saved - 1, saved)} <= set(found)
    assert torch.equal(torch.load(tmp_path / "w.pt")["w"], state["w"])


def test_a_fault_of_pyprof_reaches_neither_a_collection_nor_a_save(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(name: str, start: int) -> None:
        raise ValueError("injected")

    unraised: list[object] = []
    monkeypatch.setattr(sys, "unraisablehook", unraised.append)  # where Python puts an error of a callback
    monkeypatch.setattr(interruptions, "_note", broken)
    monkeypatch.setattr(interruptions, "_SHORTEST", 0)
    with pyprof.profile(str(tmp_path / "net.sqlite")):
        torch.ones(3).add(1)
        gc.collect()
        torch.save(torch.ones(2), tmp_path / "w.pt")
    assert not unraised
    assert capture.Capture.load(tmp_path / "net.sqlite").lost["range not recorded (ValueError)"] >= 2


def test_an_error_in_a_save_is_the_programs(tmp_path: Path) -> None:
    with pyprof.profile(str(tmp_path / "net.sqlite")):
        torch.ones(3).add(1)
        with pytest.raises((pickle.PicklingError, AttributeError)):
            torch.save(lambda: 0, tmp_path / "w.pt")
        with pytest.raises(RuntimeError, match="Parent directory"):
            torch.save(torch.ones(2), tmp_path / "none" / "w.pt")
    assert sum(text.startswith("torch.save (") for text in ranges(tmp_path / "net.sqlite")) == 1


def test_short_collections_are_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of 199, 200 and 201 us the last two are noted, with their starts."""
    clock = iter([0, 199_000, 300_000, 500_000, 600_000, 801_000])
    starts: list[int] = []
    monkeypatch.setattr(interruptions, "_SHORTEST", 200_000)
    monkeypatch.setattr(interruptions, "_note", lambda name, start: starts.append(start))
    monkeypatch.setattr(interruptions, "time_ns", lambda: next(clock))
    for _ in range(3):
        interruptions._collects("start", {})
        interruptions._collects("stop", {})
    assert starts == [300_000, 600_000]


def test_nothing_stays_behind() -> None:
    before = list(gc.callbacks), torch.serialization._open_zipfile_writer
    pyprof.init()
    assert len(gc.callbacks) == len(before[0]) + 1
    pyprof.shutdown()
    assert (list(gc.callbacks), torch.serialization._open_zipfile_writer) == before
