# SPDX-License-Identifier: Apache-2.0
"""Sequences of kernels, worked out by hand."""

from __future__ import annotations

import pytest

from tests.build import Kernel, Recording, call, recording
from tests.reports.test_oracle import load, rows


def kernels(text: str, *, stream: int = 7, at: int = 0, device: int = 0) -> list[Kernel]:
    """A kernel of 10 ns per letter, 5 ns after the one before; C is a copy, a dot a wait of 100 ns."""
    out = []
    for letter in text:
        if letter == ".":
            at += 100
            continue
        size = 8 if letter == "C" else None
        copy = None if size is None else 1
        out.append(Kernel(f"k_{letter}", at, at + 10, None, stream=stream, device=device, size=size, copy_kind=copy))
        at += 15
    return out


def found(*parts: list[Kernel]) -> dict[str, tuple[int, int, float, float]]:
    prof = load(Recording(kernels=[kernel for part in parts for kernel in part]))
    keys = ("occurrences", "time_ns", "gap_ns", "share")
    return {row["kernels"].replace("k_", ""): tuple(row[key] for key in keys) for row in rows(prof.report("sequences"))}


def test_a_sequence_and_the_gaps_in_it():
    # a > b twice, 5 and 105 ns apart; x, y and z once
    assert found(kernels("abxa.byz")) == {"a > b": (2, 40, 55.0, pytest.approx(100 * 40 / 70))}


def test_only_the_longest_is_shown_unless_the_shorter_runs_more_often():
    assert found(kernels("abcxabcyabz")) == {
        "a > b > c": (2, 60, 5.0, pytest.approx(100 * 60 / 110)),
        "a > b": (3, 60, 5.0, pytest.approx(100 * 60 / 110)),
    }


def test_streams_devices_and_copies_end_a_sequence():
    assert found(kernels("abCab", stream=7)) == {"a > b": (2, 40, 5.0, 100.0)}
    assert found(kernels("aCb"), kernels("aCb", stream=8)) == {}
    assert found(kernels("ab", stream=7), kernels("ab", stream=8, at=3)) == {"a > b": (2, 40, 5.0, 100.0)}
    assert found(kernels("a", stream=7), kernels("ba", stream=8, at=50), kernels("b", device=1, at=200)) == {}


def test_operators_where_it_is_first():
    relu, mul = call("torch.relu", (4, 4)), call("torch.mul", (4, 4), 2.0)
    prof = load(recording(f"{relu}\n    > 10 a\n{mul}\n    > 10 b\n> 10 x\n{mul}\n    > 10 a\n> 10 b"))
    (row,) = rows(prof.report("sequences"))
    assert (row["kernels"], row["operators"], row["length"]) == ("a > b", "relu > mul", 2)


def test_without_repetition_or_a_gpu_there_is_none(on_cpu):
    assert found(kernels("abc")) == {}
    assert rows(on_cpu.report("sequences")) == []
