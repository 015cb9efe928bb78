# SPDX-License-Identifier: Apache-2.0
"""The join agrees with the plainest code: every launch against every range, on random recordings."""

from __future__ import annotations

from collections import defaultdict
from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from pyprof.core import marker
from pyprof.core.model import Call
from tests import build
from tests.build import Kernel, Launch, Range, Recording, call, classic, examples

PLACES = [(1, 100), (1, 100), (1, 100), (2, 100), (1, 200)]  # thread, process; most on one, to nest deeply
times = st.integers(0, 40)
places = st.sampled_from(PLACES)


@st.composite
def recordings(draw: st.DrawFn) -> Recording:
    """Ranges that overlap, touch, coincide and are empty; correlation numbers that processes share."""
    out = Recording()
    spans = draw(st.lists(st.tuples(times, st.integers(0, 40), places, st.integers(0, 2)), max_size=12))
    for number, (start, length, (thread, process), kind) in enumerate(spans):
        text = (f"aten::r{number}, seq = {number}", call(f"m.f{number}"), classic(f"m.f{number}"))[kind]
        out.ranges.append(Range(text, start, start + length, thread, process))
    launches = draw(st.lists(st.tuples(times, places, st.integers(1, 6)), min_size=1, max_size=12))
    for start, (thread, process), correlation in launches:
        out.launches.append(Launch(start, start + 1, correlation, thread, process))
    wanted = draw(st.lists(st.tuples(st.integers(1, 7), places, st.integers(50, 52)), min_size=1, max_size=12))
    for number, (correlation, (_, process), start) in enumerate(wanted):
        out.kernels.append(Kernel(f"k{number}", start, 53, correlation, process))
    return out


def name(item: Range) -> str:
    return (
        item.text.partition(",")[0] if item.text.startswith("aten") else item.text.split("'op': '")[1].partition("'")[0]
    )


def is_call(item: Range) -> bool:
    return item.text.startswith("{")


def cut(ranges: list[Range]) -> dict[int, int]:
    """Where each range ends: no later than what began before it on its thread and is still open."""
    ends: dict[int, int] = {}
    for item in outermost_first(ranges):
        mine = [o for o in ranges if id(o) in ends and (o.thread, o.process) == (item.thread, item.process)]
        ends[id(item)] = min([item.end, *(ends[id(o)] for o in mine if ends[id(o)] > item.start)])
    return ends


def outermost_first(ranges: list[Range]) -> list[Range]:
    """By start, the longer first; of equal ones calls come first, the text decides among them."""
    by_text = sorted(ranges, key=lambda item: item.text, reverse=True)
    return sorted(by_text, key=lambda item: (item.start, -item.end))


def launch_of(kernel: Kernel, launches: list[Launch]) -> list[Launch]:
    """The earliest launch with the kernel's correlation in its process; several if they start together."""
    mine = [x for x in launches if (x.correlation, x.process) == (kernel.correlation, kernel.process)]
    return [x for x in mine if x.start == min(y.start for y in mine)]


@examples(40)
@given(recordings())
def test_every_kernel_gets_the_innermost_range_and_the_outermost_call_of_its_launch(what):
    path = Path(build.scratch()) / "file"
    found = {row["kShortName"]: row for row in build.read(build.write_nsys(path, what))}
    ends = cut(what.ranges)
    rows_of_call = defaultdict(set)
    for kernel in what.kernels:
        row, launches = found[kernel.name], launch_of(kernel, what.launches)
        if len({(x.thread, x.start) for x in launches}) > 1:
            continue  # two threads launched under one number at one time: either is right
        if not launches:
            assert (row["tid"], row["launchStart"], row["op"], row["call"]) == (None, None, [], None)
            continue
        (launch, *_) = launches
        around = [
            item
            for item in outermost_first(what.ranges)
            if (item.thread, item.process) == (launch.thread, launch.process)
            and item.start <= launch.start < ends[id(item)]
        ]
        calls = [name(item) for item in around if is_call(item)]
        operators = [name(item) for item in around if not is_call(item)]
        assert (row["pid"], row["tid"]) == (launch.process, launch.thread)
        assert row["op"] == (calls or operators[-1:])
        assert row["seqMarker"] == [f"{op}, seq = {op.removeprefix('aten::r')}" for op in operators]
        if around:
            owner = next((item for item in around if is_call(item)), around[0])
            rows_of_call[id(owner)].add(row["call"])
        assert (row["call"] is None) == (not around)
    numbers = [number for numbers in rows_of_call.values() for number in numbers]
    assert all(len(numbers) == 1 for numbers in rows_of_call.values())
    assert len(numbers) == len(set(numbers))


@st.composite
def steps(draw: st.DrawFn) -> Recording:
    """Forward threads that count for themselves, and backwards that say whose number they carry."""
    out = Recording()
    clock = 0
    events = draw(st.lists(st.tuples(st.sampled_from([1, 2]), st.integers(1, 4), st.booleans()), max_size=25))
    for number, (thread, seq, backward) in enumerate(events):
        clock += 10
        if backward:
            out.ops.append(build.Op(call("MulBackward0"), clock, clock + 6, 9, seq=seq, forward=thread))
            out.ops.append(build.Op(call(f"aten::b{number}"), clock + 1, clock + 2, 9))
        else:
            out.ranges.append(Range(call(f"m.f{number}"), clock, clock + 8, thread))
            out.ops.append(build.Op(call("aten::mul"), clock + 1, clock + 7, thread, seq=seq))
    out.ops.append(build.Op(call("aten::end"), clock + 20, clock + 30))
    return out


@examples(20)
@given(steps())
def test_a_backward_belongs_to_the_last_forward_of_its_thread_with_its_number(what):
    path = Path(build.scratch()) / "file"
    found = {row["kShortName"]: row for row in build.read(build.write_capture(path, what))}
    forward: dict[tuple[int, int], str] = {}
    calls = iter(what.ranges)
    events = iter(what.ops)
    for event in events:
        if event.name == "aten::mul":
            forward[event.thread, event.seq] = name(next(calls))
        elif event.name == "MulBackward0":
            inside = next(events).name
            row = found[inside]
            expected = forward.get((event.forward, event.seq))
            assert row["op"][0] == (expected or inside)
            assert row["fwdThread"] == (event.forward if expected else None)
            assert (row["dir"], row["seqId"]) == ("bprop", [event.seq])


def test_a_call_of_the_interval_of_its_operator_is_around_it(tmp_path):
    """Calls that no wrapper saw are made from their operator and have its times, whatever their texts."""
    text = marker.encode(Call("aten", "aten::sigmoid"), trace=["train.py:9"], module="net.gate")
    what = Recording(ranges=[Range(text, 10, 20)], ops=[build.Op(call("aten::sigmoid"), 10, 20)])
    (row,) = build.read(build.write_capture(tmp_path / "file", what))
    assert (row["module"], row["trace"], row["call"]) == ("net.gate", ["train.py:9"], 0)
