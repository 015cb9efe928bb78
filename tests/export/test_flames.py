# SPDX-License-Identifier: Apache-2.0
"""Flame graphs: stacks by hand, sums, and what a stranger's names may not break."""

from __future__ import annotations

import gzip
import json
import re
from pathlib import Path

import pytest

import pyprof
from pyprof.profiles import Profile
from tests import kineto
from tests.build import call, recording, write_capture
from tests.cli import start
from tests.reports.conftest import CPU

MM = call("torch.mm", (4, 4), (4, 4), module="net.first", trace=("run.py:9", "net.py:1"))
TEXT = f"""
{MM}
    api 30 cudaMalloc_v3020
    > 70 gemm
{MM}
    > 50 gemm
    > 9 size=64 copy_kind=1 copy
> 5 lonely
"""
ABOVE = "run.py:9;net.py:1;net;first;mm"


def loaded(path: Path, text: str) -> Profile:
    return pyprof.load(write_capture(path / "a.sqlite", recording(text)))


def collapsed(prof: Profile, path: Path, name: str = "collapsed", **window: int) -> dict[str, int]:
    prof.export(name, path / "out.txt", **window)
    lines = (path / "out.txt").read_text().splitlines()
    found = {stack: int(time) for stack, _, time in (line.rpartition(" ") for line in lines)}
    assert len(found) == len(lines)
    return found


def stacks_of(prof, folder):
    """Return ns by stack of each profile of a file for speedscope."""
    path = folder / "stacks.json"
    prof.export("speedscope", path)
    document = json.loads(path.read_text())
    frames = [frame["name"] for frame in document["shared"]["frames"]]
    return {
        profile["name"]: {
            ";".join(frames[i] for i in sample): weight
            for sample, weight in zip(profile["samples"], profile["weights"], strict=True)
        }
        for profile in document["profiles"]
    }


def test_gpu_time_by_line_module_operator_and_kernel(tmp_path):
    found = collapsed(loaded(tmp_path, TEXT), tmp_path)
    assert found == {f"{ABOVE};gemm": 120, f"{ABOVE};memcpy HtoD": 9, "lonely": 5}


def test_cpu_time_and_api_calls_apart(tmp_path):
    """A launch takes 4 ns."""
    prof = loaded(tmp_path, TEXT)
    found = stacks_of(prof, tmp_path)["CPU time"]
    api = 30 + 3 * 4
    assert found[f"{ABOVE};(API calls)"] == api
    assert found[ABOVE] == int(prof.report("detail").set_index("type")["cpu"]["mm"]) - api
    assert found["unassociated_cudaLaunchKernel;(API calls)"] == 4


def test_without_a_gpu_it_is_the_operators_own_time(tmp_path):
    prof = loaded(tmp_path, CPU)
    found = collapsed(prof, tmp_path)
    assert sum(found.values()) == prof.kernels["duration_ns"].sum() == 200
    assert found == {"mm": 20, "aten::mm": 60, "relu": 40, "aten::relu": 80}
    assert sum(stacks_of(prof, tmp_path)["CPU time"].values()) == 200


def test_backward_is_told_from_forward_and_ranges_from_operators(tmp_path):
    forward = kineto.Nested("# mine\n    > lib\nseq=1 aten::mm\n    > f\n").events
    backward = [
        kineto.op("MmBackward0", 60_000, 70_000, 1, 1, tid=102), kineto.launch(61_000, 62_000, 900, 102),
        kineto.kernel("b", 65_000, 65_500, 900),
    ]  # fmt: skip
    path = kineto.write(tmp_path / "trace.json", [*forward, *backward])
    assert collapsed(pyprof.load(path), tmp_path) == {
        "mine;lib": 1000, "aten::mm;f": 1000, "aten::mm (backward);b": 500,
    }  # fmt: skip


def test_a_window_has_what_is_going_on_in_it(tmp_path):
    prof = loaded(tmp_path, TEXT)
    first = prof.kernels.iloc[0]
    found = collapsed(prof, tmp_path, start=int(first["start_ns"]), end=int(first["start_ns"]) + 1)
    assert found == {f"{ABOVE};gemm": 70}


def test_speedscope_has_both_profiles(tmp_path):
    prof = loaded(tmp_path, TEXT)
    prof.export("speedscope", tmp_path / "out.json.gz")
    found = json.loads(gzip.decompress((tmp_path / "out.json.gz").read_bytes()))
    assert found["$schema"] == "https://www.speedscope.app/file-format-schema.json"
    frames = found["shared"]["frames"]
    for profile in found["profiles"]:
        assert (profile["type"], profile["unit"], profile["startValue"]) == ("sampled", "nanoseconds", 0)
        assert profile["endValue"] == sum(profile["weights"])
    assert [profile["name"] for profile in found["profiles"]] == ["GPU time", "CPU time"]
    assert stacks_of(prof, tmp_path)["GPU time"] == collapsed(prof, tmp_path)
    assert {"name": "net.py:1", "file": "net.py", "line": 1} in frames


@pytest.mark.parametrize("name", ["a;b 7", "x\ny 9", "\x1b[2J", " ", "ü\u2028;", "<script>&", "a \ud800"])
def test_names_of_a_stranger_stay_one_frame(tmp_path, name):
    path = kineto.write(tmp_path / "trace.json", [kineto.launch(0, 5, 1), kineto.kernel(name, 10, 30, 1)])
    prof = pyprof.load(path)
    prof.export("collapsed", tmp_path / "out.txt")
    (line,) = (tmp_path / "out.txt").read_text().split("\n")[:-1]
    assert re.fullmatch(r"[^;\x00-\x1f]+ 20", line)
    prof.export("speedscope", tmp_path / "out.json")
    frames = json.loads((tmp_path / "out.json").read_text())["shared"]["frames"]
    assert prof.kernels["full_name"].astype(object).tolist()[0] in [frame["name"] for frame in frames]


def test_workers_are_the_outermost_frames(tmp_path):
    prof = loaded(tmp_path, "> 5 a\nthread 1 process 200\n> 7 b")
    names = [name for (name,) in prof.database.rows("select name from worker order by id")]
    assert collapsed(prof, tmp_path) == {f"{names[0]};a": 5, f"{names[1]};b": 7}


def test_the_command_writes_it(tmp_path):
    source = write_capture(tmp_path / "a.sqlite", recording(TEXT))
    assert start("export", ["--format=collapsed", "-o", str(tmp_path / "out.txt"), str(source)]) == 0
    assert (tmp_path / "out.txt").read_text().splitlines()[0] == "lonely 5"
