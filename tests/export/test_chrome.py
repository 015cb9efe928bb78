# SPDX-License-Identifier: Apache-2.0
"""Chrome traces: valid, complete, exact to the nanosecond, with flows that begin and end at what they join."""

from __future__ import annotations

import gzip
import json
import sqlite3
from collections import Counter
from decimal import Decimal
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

import pyprof
from pyprof.commands.main import main
from pyprof.core.errors import PyProfError, UsageError
from pyprof.core.marker import encode
from pyprof.core.model import Arg, Call, Other, Tensor
from pyprof.export import chrome, chrome_names, events, json_text
from pyprof.export.tracks import Tracks
from pyprof.parse import reader_process
from pyprof.profiles import Profile
from tests import build, kineto

LINEAR = build.call("torch.nn.functional.linear", (64, 32), (16, 32), trace=["net.py:7"], module="fc")
RELU = build.call("torch.relu", (64, 16), inplace=True)
SGD = "{'mod': 'torch.optim', 'op': 'SGD.step', 'args': []}"
STEP = f"""
between layer:fc
{LINEAR}
    op seq=3 aten::addmm
        > 1040 grid=2,3,1 block=64,2,1 registers=40 static=512 volta_sgemm
        + 7 stream=9 reduce_kernel
mine
    {RELU}
        > 30 stream=8 relu_kernel
thread 2
autograd::engine::evaluate_function: AddmmBackward0
    op seq=3 forward=1 AddmmBackward0
        > 55 volta_sgemm_tn
thread 1
mark here
{SGD}
    > 5 device=1 sgd_kernel
api 30 cudaDeviceSynchronize_v3020
wait 100
"""
PHASES = ("X", "M", "s", "f", "i", "b", "e")


@pytest.fixture(autouse=True)
def _here(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reader_process, "cores", lambda: 1)


@pytest.fixture
def prof(tmp_path: Path) -> Profile:
    return pyprof.load(build.write_capture(tmp_path / "net.sqlite", build.recording(STEP * 3)))


def read(path: Path) -> dict[str, Any]:
    """Strict JSON; numbers with a point as decimals."""

    def no(name: str) -> Any:
        raise AssertionError(f"{name} is no JSON")

    raw = gzip.decompress(path.read_bytes()) if path.name.endswith(".gz") else path.read_bytes()
    found: dict[str, Any] = json.loads(raw.decode("ascii"), parse_float=Decimal, parse_constant=no)
    return found


def exported(prof: Profile, path: Path, **window: int) -> list[dict[str, Any]]:
    """The events of an export that has been checked."""
    prof.export("chrome", path, **window)
    found: list[dict[str, Any]] = read(path)["traceEvents"]
    check(found)
    return found


def ns(micro: Any) -> int:
    value = Decimal(micro) * 1000
    assert value == int(value)
    return int(value)


def check(found: list[dict[str, Any]]) -> None:
    """What torch's tests and Perfetto ask of a trace."""
    begins: set[tuple[Any, ...]] = set()
    rows: set[tuple[Any, ...]] = set()
    named: dict[str, set[tuple[Any, ...]]] = {}
    for event in found:
        assert event["ph"] in PHASES
        assert {"ph", "name", "pid", "tid", "ts"} <= event.keys()
        assert all(type(event[key]) is int for key in ("pid", "tid"))
        if event["ph"] == "M":
            named.setdefault(event["name"], set()).add((event["pid"], event["tid"]))
            continue
        assert event["cat"]
        rows.add((event["pid"], event["tid"]))
        if event["ph"] == "X":
            assert ns(event["dur"]) >= 0
            begins.add((event["pid"], event["tid"], event["ts"]))
    assert rows <= named["thread_name"]
    assert rows <= named["thread_sort_index"]
    for name in ("process_name", "process_labels", "process_sort_index"):
        assert {pid for pid, _ in named[name]} == {pid for pid, _ in named["thread_name"]}
    flows: dict[tuple[str, int], Counter[str]] = {}
    for event in found:
        if event["ph"] in "sf":
            assert event["cat"] == event["name"]
            assert (event["pid"], event["tid"], event["ts"]) in begins
            assert event.get("bp") == ("e" if event["ph"] == "f" else None)
            flows.setdefault((event["cat"], event["id"]), Counter())[event["ph"]] += 1
    for (what, _), ends in flows.items():
        assert ends["s"] == 1
        assert ends["f"] >= 1 if what == "ac2g" else ends["f"] == 1
    opened = Counter(event["id"] for event in found if event["ph"] == "b")
    assert opened == Counter(event["id"] for event in found if event["ph"] == "e")


def of(found: list[dict[str, Any]], *categories: str) -> list[dict[str, Any]]:
    return [event for event in found if event["ph"] == "X" and event["cat"] in categories]


GPU = ("kernel", "gpu_memcpy", "gpu_memset")


def gpu_rows(found: list[dict[str, Any]]) -> list[tuple[Any, ...]]:
    return sorted(
        (e["name"], ns(e["ts"]), ns(e["dur"]), e["args"]["device"], e["args"]["stream"]) for e in of(found, *GPU)
    )


def expected_rows(kernels: pd.DataFrame) -> list[tuple[Any, ...]]:
    return sorted((k.full_name, k.start_ns, k.duration_ns, int(k.device), int(k.stream)) for k in kernels.itertuples())


def test_events_of_the_gpu_are_those_of_the_profile(prof: Profile, tmp_path: Path) -> None:
    found = exported(prof, tmp_path / "x.json")
    assert gpu_rows(found) == expected_rows(prof.kernels)
    assert len(gpu_rows(found)) == 15
    first = next(e for e in of(found, "kernel") if e["name"] == "volta_sgemm")
    args = first["args"]
    assert (first["pid"], first["tid"]) == (0, 7)
    assert (args["grid"], args["block"]) == ([2, 3, 1], [64, 2, 1])
    assert (args["registers per thread"], args["shared memory"]) == (40, 512)
    assert args["flops"] == 2 * 64 * 32 * 16  # a product: 2 m k n
    assert args["module"] == "fc"
    assert args["stack"] == "net.py:7"
    assert args["shapes"] == "(64, 32); (16, 32)"
    assert args["direction"] == "fprop"
    known = {k.full_name: k.bytes for k in prof.kernels.itertuples()}
    assert args["algorithmic bytes"] == known["volta_sgemm"]


def test_calls_ranges_and_operators_are_on_their_threads(prof: Profile, tmp_path: Path) -> None:
    recording = build.recording(STEP * 3)
    zero = min(one.start for one in recording.ranges)
    found = exported(prof, tmp_path / "x.json")
    api = sorted((e["name"], e["cat"], e["tid"], ns(e["ts"]), ns(e["dur"])) for e in of(found, "cuda_runtime"))
    assert api == sorted(
        (
            (one.name or "cudaLaunchKernel").split("_v")[0],
            "cuda_runtime",
            one.thread,
            one.start - zero,
            one.end - one.start,
        )
        for one in recording.launches
    )
    ops = [e for e in of(found, "cpu_op") if e["name"] in ("aten::addmm", "AddmmBackward0")]
    assert sorted(
        (e["name"], e["tid"], ns(e["ts"]), ns(e["dur"]), e["args"]["Sequence number"]) for e in ops
    ) == sorted((one.name, one.thread, one.start - zero, one.end - one.start, 3) for one in recording.ops)
    (linear, *_) = [e for e in of(found, "cpu_op") if e["name"] == "torch.nn.functional.linear"]
    assert linear["args"]["Input Dims"] == [[64, 32], [16, 32]]
    assert linear["args"]["Input type"] == ["float", "float"]
    assert linear["args"]["module"] == "fc"
    assert linear["args"]["stack"] == "net.py:7"
    assert linear["pid"] == build.PROCESS
    (relu, *_) = [e for e in of(found, "cpu_op") if e["name"] == "torch.relu"]
    assert relu["args"]["Concrete Inputs"] == ["", "True"]
    assert relu["args"]["Input Names"] == ["", "inplace"]
    assert len([e for e in of(found, "user_annotation") if e["name"] == "mine"]) == 3
    assert sorted(ns(e["ts"]) for e in found if e["ph"] == "i") == sorted(
        one.start - zero for one in recording.ranges if one.text == "here"
    )
    pairs = {e["ph"]: e for e in found if e.get("name") == "layer:fc"}
    assert set(pairs) == {"b", "e"}


def test_what_belongs_to_one_execution_has_its_external_id(prof: Profile, tmp_path: Path) -> None:
    """As torch.profiler: an operator, its launches, its kernels."""
    found = exported(prof, tmp_path / "x.json")
    by_id: dict[int, set[str]] = {}
    for event in found:
        if event["ph"] == "X" and "External id" in event["args"]:
            by_id.setdefault(event["args"]["External id"], set()).add(event["name"])
    linear = [names for names in by_id.values() if "torch.nn.functional.linear" in names]
    assert linear == [{"torch.nn.functional.linear", "cudaLaunchKernel", "volta_sgemm", "reduce_kernel"}] * 3
    backward = [names for names in by_id.values() if "volta_sgemm_tn" in names]
    assert len(backward) == 3
    assert all("AddmmBackward0" in str(names) for names in backward)


def test_an_execution_is_the_outermost_range_that_begins_with_it(tmp_path: Path) -> None:
    recording = build.recording(STEP)
    linear = next(one for one in recording.ranges if one.text == LINEAR)
    recording.ops[0].start = linear.start  # within the clock's resolution
    found = exported(pyprof.load(build.write_capture(tmp_path / "net.sqlite", recording)), tmp_path / "x.json")
    same = {e["name"]: e["args"] for e in of(found, "cpu_op") if "addmm" in e["name"] or "linear" in e["name"]}
    assert same["torch.nn.functional.linear"]["op"].endswith("linear")
    assert "op" not in same["aten::addmm"]


def test_flows_join_launches_and_backward(prof: Profile, tmp_path: Path) -> None:
    found = exported(prof, tmp_path / "x.json")
    begin = {e["id"]: e for e in found if e["ph"] == "s" and e["cat"] == "ac2g"}
    ends = [e for e in found if e["ph"] == "f" and e["cat"] == "ac2g"]
    assert (len(begin), len(ends)) == (12, 15)  # 4 launches a step; one starts two kernels
    kernels = {(e["pid"], e["tid"], e["ts"]): e for e in of(found, "kernel")}
    launch_of = {k.start_ns: k.launch_ns for k in prof.kernels.itertuples()}
    for end in ends:
        kernel = kernels[end["pid"], end["tid"], end["ts"]]
        assert kernel["args"]["correlation"] == end["id"]
        assert ns(begin[end["id"]]["ts"]) == launch_of[ns(end["ts"])]
    forward = [e for e in found if e["cat" if "cat" in e else "ph"] == "fwdbwd"]
    ops = prof.ops
    paired = ops[ops["forward"].notna()]
    assert len(forward) == 2 * len(paired) == 6
    starts = sorted((ns(e["ts"]), e["tid"]) for e in forward if e["ph"] == "s")
    assert starts == sorted((int(ops.loc[number, "start_ns"]), 1) for number in paired["forward"])


def test_iterations_are_steps(prof: Profile, tmp_path: Path) -> None:
    found = exported(prof, tmp_path / "x.json")
    steps = [e for e in of(found, "user_annotation") if e["name"].startswith("ProfilerStep#")]
    assert [(e["name"], ns(e["ts"]), ns(e["dur"]), e["tid"]) for e in steps] == [
        (f"ProfilerStep#{row.step}", row.host_start_ns, row.host_end_ns - row.host_start_ns, 1)
        for row in prof.steps.itertuples()
    ]
    assert len(steps) > 2


def test_head(prof: Profile, tmp_path: Path) -> None:
    prof.export("chrome", tmp_path / "x.json")
    head = read(tmp_path / "x.json")
    zero = min(one.start for one in build.recording(STEP).ranges)
    assert head["baseTimeNanoseconds"] == 1_700_000_000_000_000_000 + zero
    assert head["displayTimeUnit"] == "ms"
    assert [device["id"] for device in head["deviceProperties"]] == [0, 1]
    assert all(type(device["numSms"]) is int for device in head["deviceProperties"] if "numSms" in device)


def test_iterations_that_are_ranges_are_there_once(tmp_path: Path) -> None:
    lines = "".join(f"op ProfilerStep#{n}\n    {RELU}\n        > 30 relu_kernel\n" for n in (4, 5))
    recording = build.recording(lines)
    recording.steps += [(4, 10, 60), (5, 60, 120)]
    prof = pyprof.load(build.write_capture(tmp_path / "net.sqlite", recording))
    assert prof.aggregation.method == "marks"
    found = exported(prof, tmp_path / "x.json")
    assert [e["name"] for e in found if "ProfilerStep" in e["name"]] == ["ProfilerStep#4", "ProfilerStep#5"]


def test_a_trace_of_one_rank_says_which(tmp_path: Path) -> None:
    (tmp_path / "run").mkdir()
    build.write_nsys(tmp_path / "run" / "a.rank5.sqlite", build.recording(STEP))
    pyprof.load(tmp_path / "run").export("chrome", tmp_path / "x.json")
    assert read(tmp_path / "x.json")["distributedInfo"] == {"rank": 5}


def test_a_window_has_what_goes_on_in_it(prof: Profile, tmp_path: Path) -> None:
    whole = exported(prof, tmp_path / "x.json")
    steps = prof.steps
    start, end = int(steps["host_start_ns"][1]) + 3, int(steps["host_end_ns"][1]) - 5
    part = exported(prof, tmp_path / "y.json", start=start, end=end)

    def inside(event: dict[str, Any]) -> bool:
        begin, length = ns(event["ts"]), ns(event["dur"])
        return begin < end and (begin + length > start or begin == start)

    def key(event: dict[str, Any]) -> str:
        return json.dumps(event, sort_keys=True, default=str)

    assert sorted(map(key, (e for e in part if e["ph"] == "X"))) == sorted(
        key(e) for e in whole if e["ph"] == "X" and inside(e)
    )
    assert 0 < len(of(part, "kernel")) < len(of(whole, "kernel"))
    kept = {key(e) for e in part if e["ph"] in "sf"}
    assert kept < {key(e) for e in whole if e["ph"] in "sf"}
    assert kept
    with pytest.raises(UsageError, match="window from 5 to 5 ns is empty"):
        prof.export("chrome", tmp_path / "z.json", start=5, end=5)


def test_pieces_make_no_difference(prof: Profile, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = exported(prof, tmp_path / "x.json")
    monkeypatch.setattr(events, "PIECE", 2)
    pieces = exported(prof, tmp_path / "y.json")
    assert len(whole) == len(pieces)
    order = lambda found: sorted(json.dumps(e, sort_keys=True, default=str) for e in found)  # noqa: E731
    assert order(whole) == order(pieces)


def test_compressed_is_the_same(prof: Profile, tmp_path: Path) -> None:
    prof.export("chrome", tmp_path / "x.json")
    prof.export("chrome", tmp_path / "x.json.gz")
    assert gzip.decompress((tmp_path / "x.json.gz").read_bytes()) == (tmp_path / "x.json").read_bytes()


NAMES = [
    'quo"te',
    "back\\slash",
    "line\nfeed\ttab",
    "\x00\x01\x1f\x7f",
    "</script>",
    "\u2028 \u0394 \U0001f600",
    "'",
    "NaN",
]


def test_hostile_names_stay_json(tmp_path: Path) -> None:
    names = [*NAMES, "x" * 1_000_000]
    recording = build.recording("".join(f"r{i}\n    > 5 k{i}\n" for i in range(len(names))))
    for one, kernel, name in zip(recording.ranges, recording.kernels, names):
        one.text, kernel.name = name, name
    path = build.write_nsys(tmp_path / "net.sqlite", recording)
    connection = sqlite3.connect(path)
    broken = "update StringIds set value = cast(x'22eda080ff' as text) where value = 'NaN'"  # no UTF-8
    connection.execute(broken)
    connection.commit()
    connection.close()
    found = exported(pyprof.load(path), tmp_path / "x.json")
    assert {e["name"] for e in of(found, "kernel")} >= {name for name in names if name != "NaN"}
    assert {e["name"] for e in of(found, "user_annotation")} >= set(NAMES)


def test_halves_of_surrogates_are_escaped() -> None:
    assert json_text.quoted('\ud800"\n') == '"\\ud800\\"\\n"'


def test_without_a_gpu_operators_have_the_figures(tmp_path: Path) -> None:
    lines = f"{LINEAR}\n    op seq=3 aten::addmm\n        wait 50\n{RELU}\n    op aten::relu\n        wait 9\n"
    ops = lines.replace("op seq=3 aten::addmm", "op seq=3 " + build.call("aten::addmm", (16,), (64, 32), (32, 16)))
    prof = pyprof.load(build.write_capture(tmp_path / "net.sqlite", build.recording(ops * 3)))
    found = exported(prof, tmp_path / "x.json")
    addmm = [e for e in of(found, "cpu_op") if e["name"] == "aten::addmm"]
    assert [e["args"]["flops"] for e in addmm] == [int(k.flops) for k in prof.kernels.itertuples() if k.op == "linear"]
    assert addmm[0]["args"]["flops"] >= 2 * 64 * 32 * 16
    assert addmm[0]["args"]["Input Dims"] == [[16], [64, 32], [32, 16]]
    assert addmm[0]["args"]["op module"] == "fc"
    assert sum(e["args"].get("flops", 0) for e in found if e["ph"] == "X") == prof.kernels["flops"].sum()
    assert not of(found, *GPU)


def test_workers_of_equal_pid_and_device_are_told_apart(tmp_path: Path) -> None:
    for number in range(3):
        build.write_nsys(tmp_path / f"a.rank{number}.sqlite", build.recording(f"{LINEAR}\n    > 5 k{number}\n"))
    prof = pyprof.load(tmp_path)
    found = exported(prof, tmp_path / "x.json")
    labels = {e["args"]["labels"]: e["pid"] for e in found if e["name"] == "process_labels"}
    assert set(labels) == {f"{what} rank{n}" for what in ("CPU", "GPU 0") for n in range(3)}
    assert len(set(labels.values())) == 6
    assert (labels["GPU 0 rank0"], labels["CPU rank0"]) == (0, build.PROCESS)
    for number in range(3):
        (kernel,) = [e for e in of(found, "kernel") if e["name"] == f"k{number}"]
        assert kernel["pid"] == labels[f"GPU 0 rank{number}"]
        assert kernel["args"]["device"] == 0
        (begin,) = [e for e in found if e["ph"] == "s" and e["id"] == kernel["args"]["correlation"]]
        assert begin["pid"] == labels[f"CPU rank{number}"]


def test_a_pid_that_is_a_device_number_is_replaced(tmp_path: Path) -> None:
    """In a container the program is process 1."""
    text_ = f"thread 1 process 1\n{LINEAR}\n    > 5 device=1 k\n"
    prof = pyprof.load(build.write_nsys(tmp_path / "net.sqlite", build.recording(text_)))
    tracks = Tracks(prof.database)
    assert list(tracks.device.values()) == [1]
    assert list(tracks.pid.values()) == [10_000_000]


def test_files_are_whole_or_not_there(prof: Profile, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    target = tmp_path / "out" / "x.json"
    with pytest.raises(PyProfError, match=r"x\.json: the export could not be written \(the folder does not exist\)"):
        prof.export("chrome", target)
    target.parent.mkdir()
    target.write_text("old")

    def full(*_: Any) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(chrome, "put", full)
    with pytest.raises(PyProfError, match=r"could not be written \(No space left on device\)"):
        prof.export("chrome", target)
    assert target.read_text() == "old"
    assert [path.name for path in target.parent.iterdir()] == ["x.json"]
    with pytest.raises(UsageError, match="unknown export format 'svg'; choose from chrome, collapsed"):
        prof.export("svg", target)


def test_command(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = build.write_capture(tmp_path / "net.sqlite", build.recording(STEP))
    out = tmp_path / "x.json"
    assert main(["export", "--format=chrome", "-o", str(out), str(path)]) == 0
    check(read(out)["traceEvents"])
    assert main(["export", "-o", str(out), str(path)]) == 2
    assert "x.json exists: use --force to replace it" in capsys.readouterr().err
    assert main(["export", "-f", "-o", str(path), str(path)]) == 2
    assert "is an input" in capsys.readouterr().err
    assert main(["export", "-f", "--start", "0", "--end", "60", "-o", str(out), str(path)]) == 0
    assert all(ns(e["ts"]) < 60 for e in read(out)["traceEvents"])
    assert main(["export", "-f", "-o", str(out), str(tmp_path / "none")]) == 1


RECORDINGS = [
    "nsys/h100_2gpu_1s.sqlite",
    "nsys/cifar_rtx2070_pyprof_markers.sqlite",
    "nvprof/transformer_lm/net.sql",
]


@pytest.mark.parametrize("name", RECORDINGS)
def test_real_recordings(data: Path, tmp_path: Path, name: str) -> None:
    prof = pyprof.load(data / name)
    assert gpu_rows(exported(prof, tmp_path / "x.json")) == expected_rows(prof.kernels)


@pytest.mark.parametrize("name", ["", *RECORDINGS])
def test_torchs_own_validator_finds_nothing(
    request: pytest.FixtureRequest, prof: Profile, tmp_path: Path, name: str
) -> None:
    validator = pytest.importorskip("torch.profiler._trace_validator", reason="this torch has no trace validator")
    found = pyprof.load(request.getfixturevalue("data") / name) if name else prof
    path = tmp_path / "x.json.gz"
    found.export("chrome", path)
    assert validator.validate_trace(str(path)) == (True, [])
    assert len(read(path)["traceEvents"]) > 20


def test_arguments_without_a_value_keep_their_type() -> None:
    call = Call("aten", "aten::f", (Arg("", Other("Generator", "cpu")), Arg("", None), Arg("", (1, 2))))
    shown = chrome_names.of_event("aten::f", encode(call))
    args = json.loads(f"{{{shown.args[1:]}}}")
    assert args["Input type"] == ["Generator", "", "ScalarList"]
    assert args["Concrete Inputs"] == ["cpu", "", "[1, 2]"]
    assert args["Input Dims"] == [[], [], []]


def test_a_collective_says_what_the_validator_asks_for() -> None:
    exchanged = Tensor((8,), "bfloat16")
    call = Call("aten", "record_param_comms", (
        Arg("collective", "all_gather"), Arg("input", exchanged), Arg("output", Tensor((16,), "bfloat16")),
        Arg("ranks", 2),
    ))  # fmt: skip
    args = json.loads(f"{{{chrome_names.of_event('record_param_comms', encode(call)).args[1:]}}}")
    assert args == {
        "Collective name": "all_gather", "In msg nelems": 8, "Out msg nelems": 16, "dtype": "BFloat16", "Group size": 2,
    }  # fmt: skip
    assert "Collective name" not in chrome_names.of_event("record_param_comms", encode(Call("aten", "x"))).args


# Recordings of torch.profiler in today's spelling: what is exported reads as the same profile.
KINETO = [
    "mi210_gpu_only.json.gz",
    "nccl_a100_rank0of2.json.gz",
    pytest.param("h100_owlv2_large.json.gz", marks=pytest.mark.long),
    pytest.param("v100_216k_events.json.gz", marks=pytest.mark.long),
]


@pytest.mark.parametrize("name", KINETO)
def test_traces_of_torch_profiler_come_back_as_they_were(data: Path, tmp_path: Path, name: str) -> None:
    source = data / "kineto" / name
    if not source.exists():
        pytest.skip(f"no {name} among the recordings of others")
    validator = pytest.importorskip("torch.profiler._trace_validator", reason="this torch has no trace validator")
    prof, path = pyprof.load(source), tmp_path / "x.json.gz"
    prof.export("chrome", path)
    back = pyprof.load(path)
    for mine, theirs in (
        (prof.kernels, back.kernels),
        (prof.steps, back.steps),
        (prof.devices, back.devices),
    ):
        pd.testing.assert_frame_equal(
            mine.reset_index(drop=True).astype(object), theirs.reset_index(drop=True).astype(object)
        )
    assert len(prof.ops) == len(back.ops)
    # What the original lacks the export cannot have.
    assert validator.validate_trace(str(path))[0] == validator.validate_trace(str(source))[0]


@pytest.mark.parametrize("number", [-4, -(2**63)])
def test_a_device_with_a_negative_number(number: int, tmp_path: Path) -> None:
    """As a damaged trace may have it."""
    events = [
        kineto.op("aten::add", 3000, 4000),
        kineto.launch(3100, 3200, 7),
        kineto.kernel("add", 3300, 3400, 7),
    ]
    for event in events:
        if event["cat"] == "kernel":
            event["pid"] = event["args"]["device"] = number
    prof = pyprof.load(kineto.write(tmp_path / "trace.json", events))
    assert prof.database.rows("select device from event where kind = 0") == [(number,)]
    prof.export("chrome", tmp_path / "out.json")
    assert f"GPU {number}" in (tmp_path / "out.json").read_text()
