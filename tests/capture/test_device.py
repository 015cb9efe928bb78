# SPDX-License-Identifier: Apache-2.0
"""The device layer: Kineto's events to the tables of a capture file, and from there to rows; without a GPU.

Kernels are made up for operators that are recorded here: each leaf operator launches one, in the middle of its time,
that runs after it. So what a kernel is said to belong to can be compared with what its operator is known to be.
"""

from __future__ import annotations

import gzip
import itertools
import json
import os
import sys
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
import torch.nn.functional as F
from torch import nn

import pyprof
from pyprof.capture.collectors import gpus, kineto_device, layer
from pyprof.capture.collectors.device import COPY, KERNEL, LAUNCH, MISSING, SET, SYNC, TABLES, Records
from pyprof.capture.collectors.kineto_device import DeviceEvent, decode, exported
from pyprof.capture.controller import control
from pyprof.capture.instrument.cuda_graphs import captures
from pyprof.capture.session import Session
from pyprof.commands.main import main
from pyprof.core.errors import UsageError
from pyprof.core.occupancy import Chip, estimate
from pyprof.parse import loader

from .conftest import Recorded

Record = Callable[..., Recorded]
ROOT = Path(__file__).resolve().parents[2]
V100 = Chip(7, 0, 80, 2048, 65536, 98304)
H100 = Chip(9, 0, 132, 2048, 65536, 233472)


def kernel(**metadata: Any) -> DeviceEvent:
    details = {"device": 1, "context": 2, "stream": 20, "correlation": 77, **metadata}
    return DeviceEvent("kernel", "void f<float>(float*)", 1000, 1250, 1, 20, 5, details)


def rows(records: Records, table: str) -> list[dict[str, Any]]:
    """Rows of a table as dictionaries; unknown is None, names are texts."""
    out = []
    for part in records.parts(table):
        for values in zip(*(column.tolist() for column in part.values())):
            row = {name: None if value == MISSING else value for name, value in zip(part, values)}
            for name in ("demangledName", "mangledName", "nameId"):
                if row.get(name) is not None:
                    row[name] = records.names[row[name]]
            out.append(row)
    return out


# ---------------------------------------------------------------------------------- from Kineto's events to rows


def test_a_kernel_has_its_launch_configuration() -> None:
    (row,) = rows(
        decode(
            [
                kernel(
                    **{
                        "grid": [3, 2, 1], "block": [128, 4, 1], "registers per thread": 40, "shared memory": 4096,
                        "est. achieved occupancy %": 31, "graph id": 6, "graph node id": 4294967301,
                    }
                )
            ]
        ),
        KERNEL,
    )  # fmt: skip
    assert row == {
        "start": 1000, "end": 1250, "deviceId": 1, "contextId": 2, "streamId": 20, "correlationId": 77,
        "demangledName": "void f<float>(float*)", "registersPerThread": 40, "gridX": 3, "gridY": 2, "gridZ": 1,
        "blockX": 128, "blockY": 4, "blockZ": 1, "graphNodeId": 4294967301, "graphId": 6, "sharedMemory": 4096,
        "occupancy": 3100,
    }  # fmt: skip


def test_what_kineto_does_not_tell_is_unknown_not_zero() -> None:
    bare = DeviceEvent("kernel", "k", 5, 9, 3, 7, 11, {})
    (row,) = rows(decode([bare]), KERNEL)
    assert (row["deviceId"], row["streamId"], row["correlationId"]) == (3, 7, 11)
    assert {name for name, value in row.items() if value is None} == {
        "contextId", "registersPerThread", "gridX", "gridY", "gridZ", "blockX", "blockY", "blockZ", "graphNodeId",
        "graphId", "sharedMemory", "occupancy",
    }  # fmt: skip
    # Neither a graph nor an occupancy is ever 0: Kineto writes that where it has none.
    (row,) = rows(decode([kernel(**{"graph node id": 0, "graph id": 0, "est. achieved occupancy %": 0})]), KERNEL)
    assert row["graphNodeId"] is row["graphId"] is row["occupancy"] is None


@pytest.mark.parametrize(
    ("name", "kinds"),
    [
        ("Memcpy HtoD (Pageable -> Device)", (1, 0, 2)),
        ("Memcpy DtoH (Device -> Pinned)", (2, 2, 1)),
        ("Memcpy DtoD (Device -> Device)", (8, 2, 2)),
        ("Memcpy HtoD (Managed Static -> Device Static)", (1, 6, 5)),
        ("Memcpy <unknown> (Unknown -> Unknown)", (0, None, None)),
    ],
)
def test_copies_have_their_kinds(name: str, kinds: tuple[Any, ...]) -> None:
    details = {"device": 0, "context": 1, "stream": 7, "correlation": 3, "bytes": 4096}
    (row,) = rows(decode([DeviceEvent("gpu_memcpy", name, 0, 9, 0, 7, 3, details)]), COPY)
    assert (row["copyKind"], row["srcKind"], row["dstKind"]) == kinds
    assert row["bytes"] == 4096


def test_a_copy_between_devices_names_both() -> None:
    details = {
        "fromDevice": 0, "inDevice": 0, "toDevice": 1, "fromContext": 1, "inContext": 1, "toContext": 2, "stream": 7,
        "correlation": 3, "bytes": 8,
    }  # fmt: skip
    event = DeviceEvent("gpu_memcpy", "Memcpy PtoP (Device -> Device)", 0, 9, 0, 7, 3, details)
    (row,) = rows(decode([event]), COPY)
    found = [row[name] for name in ("copyKind", "deviceId", "srcDeviceId", "dstDeviceId", "dstContextId")]
    assert found == [10, 0, 0, 1, 2]


def test_sets_synchronisations_and_calls() -> None:
    where = {"device": 0, "context": 1, "stream": 7, "correlation": 3}
    records = decode(
        [
            DeviceEvent("gpu_memset", "Memset (Device)", 0, 9, 0, 7, 3, {**where, "bytes": 64}),
            DeviceEvent("cuda_sync", "Stream Wait Event", 20, 21, 0, 7, 4,
                        {**where, "cuda_sync_kind": "Stream Wait Event", "wait_on_cuda_event_id": 12}),
            DeviceEvent("cuda_sync", "Context Sync", 30, 31, 0, -1, 5,
                        {"cuda_sync_kind": "Context Sync", "stream": -1, "correlation": 5, "device": 0, "context": 1}),
            DeviceEvent("cuda_runtime", "cudaMemsetAsync", 0, 2, 4711, 815, 3, {"cbid": 51, "correlation": 3}),
            DeviceEvent("cuda_driver", "cuLaunchKernel", 3, 4, 4711, 816, 8, {"cbid": 307, "correlation": 8}),
        ]
    )  # fmt: skip
    (row,) = rows(records, SET)
    assert (row["bytes"], row["memKind"]) == (64, 2)
    wait, context = rows(records, SYNC)
    assert (wait["syncType"], wait["eventId"], wait["streamId"]) == (2, 12, 7)
    assert (context["syncType"], context["eventId"], context["streamId"]) == (4, None, None)
    calls = [(r["nameId"], r["eventClass"], r["globalTid"], r["correlationId"]) for r in rows(records, LAUNCH)]
    assert calls == [("cudaMemsetAsync", 0, 815, 3), ("cuLaunchKernel", 1, 816, 8)]


FRAGMENT = '"queued": 0, "device": 0, "context": 1, "stream": 7, "correlation": 9, "grid": [4, 1, 1]'


class Activity:
    """As torch 2.13 hands out what Kineto holds."""

    def __init__(self, kind: str, start: int, duration: int, fragment: str):
        self._values = dict(
            type=kind, name="k", timestamp=start, duration=duration, device_id=0, resource_id=7, correlation_id=9,
            metadata_json=fragment,
        )  # fmt: skip

    def __getattr__(self, name: str) -> Any:
        return lambda: self._values[name]


def test_events_come_from_memory_and_else_from_an_exported_trace(tmp_path: Path) -> None:
    start = 1_700_000_000_123_456_789
    inner = [
        Activity("kernel", start, 250, FRAGMENT),
        Activity("cpu_op", start, 1, ""),
        Activity("kernel", 1, -1, "["),
    ]
    memory = list(kineto_device.events(SimpleNamespace(trace_activities=lambda: inner)))
    assert [(e.start, e.end, e.metadata.get("grid")) for e in memory] == [
        (start, start + 250, [4, 1, 1]),
        (1, 1, None),
    ]

    base = 1_700_000_000_000_000_000
    trace = {
        "baseTimeNanoseconds": base,
        "traceEvents": [
            {"ph": "X", "cat": "kernel", "name": "k", "pid": 0, "tid": 7, "ts": 123456.789, "dur": 0.25,
             "args": json.loads("{" + FRAGMENT + "}")},
            {"ph": "X", "cat": "cpu_op", "name": "aten::mm", "pid": 1, "tid": 1, "ts": 1, "dur": 1},
            {"ph": "f", "cat": "ac2g", "id": 9, "pid": 0, "tid": 7, "ts": 123456.789},
        ],
    }  # fmt: skip
    saved: list[str] = []

    def save(path: str) -> None:
        saved.append(path)
        Path(path).write_text(json.dumps(trace))

    assert list(kineto_device.events(SimpleNamespace(save=save))) == memory[:1]
    assert not os.path.exists(saved[0])
    raw = json.dumps({**trace, "traceEvents": [{**event, "args": None} for event in trace["traceEvents"]]})
    raw = raw.replace('"name": "k"', '"name": "k\x01\xff"')  # torch does not escape what a program named
    (event,) = kineto_device.exported(raw.encode("latin-1"))
    assert event == memory[0]._replace(name="k\x01\ufffd", correlation=0, metadata={})


def test_this_torch_hands_out_what_we_read() -> None:
    """Of its operators, as there is no GPU: the same objects carry kernels."""
    from torch._C._profiler import ProfilerActivity, ProfilerConfig, ProfilerState, _ExperimentalConfig

    config = ProfilerConfig(ProfilerState.KINETO, True, False, False, False, False, _ExperimentalConfig())
    torch._C._autograd._prepare_profiler(config, {ProfilerActivity.CPU})
    torch._C._autograd._enable_profiler(config, {ProfilerActivity.CPU})
    torch.ones(2) + 1
    result = torch._C._autograd._disable_profiler()
    if not hasattr(result, "trace_activities"):
        pytest.skip("this torch writes device events to a trace file only")
    assert list(kineto_device.events(result)) == []
    (add,) = [a for a in result.trace_activities() if a.name().startswith("aten::add")]
    (event,) = [e for e in result.events() if e.name() == "aten::add"]
    assert (add.type(), add.timestamp(), add.duration()) == ("cpu_op", event.start_ns(), event.duration_ns())
    assert kineto_device.metadata(add.metadata_json())["Input Dims"] == [[2], [], []]


# ------------------------------------------------------------------------------------------ recordings of others


@cache
def text(data: Path, name: str) -> bytes:
    path = data / "kineto" / f"{name}.json.gz"
    if not path.exists():
        pytest.skip("no recordings of others: set PYPROF_TEST_DATA to their folder")
    return gzip.decompress(path.read_bytes())


@pytest.mark.parametrize("name", ["h100_bert_small", "nccl_a100_rank0of2", "mi210_gpu_only"])
def test_recordings_of_kineto_are_read_whole(name: str, data: Path) -> None:
    trace = json.loads(text(data, name))
    events = [e for e in trace["traceEvents"] if e.get("ph") == "X" and e.get("cat") in kineto_device.KINDS]
    records = decode(exported(text(data, name)))
    kinds = Counter(event["cat"] for event in events)
    assert records.count(KERNEL) == kinds["kernel"] > 0
    assert (records.count(COPY), records.count(SET)) == (kinds["gpu_memcpy"], kinds["gpu_memset"])
    assert records.count(LAUNCH) == kinds["cuda_runtime"] + kinds["cuda_driver"]
    kernels = [event for event in events if event["cat"] == "kernel"]
    for row, event in zip(rows(records, KERNEL), kernels):
        details = event["args"]
        assert [row["gridX"], row["gridY"], row["gridZ"]] == details["grid"]
        assert [row["blockX"], row["blockY"], row["blockZ"]] == details["block"]
        assert row["demangledName"] == event["name"]
        assert (row["streamId"], row["deviceId"]) == (details["stream"], details["device"])
        assert row["correlationId"] == details["correlation"]
        assert row["registersPerThread"] == details.get("registers per thread")
        assert row["sharedMemory"] == details.get("shared memory")
    copies = [event["args"]["bytes"] for event in events if event["cat"] == "gpu_memcpy"]
    assert records.column(COPY, "bytes").tolist() == copies
    assert (records.column(COPY, "copyKind") > 0).all()
    # Nearly every kernel was launched by a call that is there too.
    launched = np.isin(records.column(KERNEL, "correlationId"), records.column(LAUNCH, "correlationId"))
    assert launched.mean() > 0.99


@pytest.mark.parametrize("name", ["h100_bert_small", "nccl_a100_rank0of2"])
def test_occupancy_agrees_with_kinetos_own(name: str, data: Path) -> None:
    """Where Kineto has one: it gives 0 for a kernel with much shared memory, which cannot be."""
    trace = json.loads(text(data, name))
    of = trace["deviceProperties"][0]
    chip = Chip(of["computeMajor"], of["computeMinor"], of["numSms"], of["maxThreadsPerMultiprocessor"],
                of["regsPerMultiprocessor"], of["sharedMemPerMultiprocessor"])  # fmt: skip
    records = decode(exported(text(data, name)))

    def column(name: str) -> Any:
        return records.column(KERNEL, name)

    block, grid = (column(f"{what}X") * column(f"{what}Y") * column(f"{what}Z") for what in ("block", "grid"))
    shared, theirs = column("sharedMemory"), column("occupancy")
    ours = estimate(chip, block, grid, column("registersPerThread"), np.zeros_like(shared), shared)
    known = theirs != MISSING
    assert known.mean() > 0.5
    assert np.abs(ours[known] - theirs[known]).max() <= 50  # theirs is in whole percent


# ------------------------------------------------------------------------------------------------------ occupancy


@pytest.mark.parametrize(
    ("chip", "block", "grid", "registers", "shared", "percent"),
    [
        # 2048 threads of a V100 hold 8 blocks of 256; registers 32 × 256 × 8 are all there are: full.
        (V100, 256, 80 * 8, 32, 0, 100),
        # 64 registers: half as many warps fit.
        (V100, 256, 80 * 8, 64, 0, 50),
        # 65 take a unit of 256 per warp more, 2304: 28 of 64 warps, three blocks of eight warps.
        (V100, 256, 80 * 8, 65, 0, 37.5),
        # 33 KB of 96: two blocks of 128 threads.
        (V100, 128, 80 * 8, 32, 33 << 10, 12.5),
        # A grid of 40 blocks on 80 multiprocessors: half a block each.
        (V100, 256, 40, 32, 0, 6.25),
        # 32 slots of 32 threads.
        (V100, 32, 80 * 64, 16, 0, 50),
        # 228 KB for two blocks, of which each gives 1 KB to the system since Ampere.
        (H100, 384, 132 * 2, 40, 113 << 10, 37.5),
        (H100, 384, 132 * 2, 40, 114 << 10, 18.75),
    ],
)
def test_occupancy(chip: Chip, block: int, grid: int, registers: int, shared: int, percent: float) -> None:
    columns = [np.array([value], np.int64) for value in (block, grid, registers, 0, shared)]
    assert estimate(chip, *columns).tolist() == [round(100 * percent)]


def test_occupancy_is_unknown_where_something_is() -> None:
    ones = np.ones(2, np.int64)
    missing = np.array([MISSING, 32], np.int64)
    assert estimate(V100, 32 * ones, ones, missing, 0 * ones, 0 * ones)[0] == MISSING
    assert estimate(V100, 32 * ones, ones, missing, 0 * ones, 0 * ones)[1] != MISSING
    unheard_of = V100._replace(major=99)
    assert (estimate(unheard_of, 32 * ones, ones, 32 * ones, 0 * ones, 0 * ones) == MISSING).all()


# ------------------------------------------------------------------------------------------------------ the tables


def test_records_join_windows_and_keep_the_first() -> None:
    first, second = (
        decode(
            [
                kernel(correlation=number),
                DeviceEvent("kernel", f"own{number}", 5000, 6000, 0, 7, number, {}),
                DeviceEvent("cuda_runtime", "cudaLaunchKernel", 100 * number, 100 * number + 5, 0, 1, number, {}),
            ]
        )
        for number in (1, 2)
    )
    first.drop("something", 1)
    second.drop("something", 2)
    first.extend(second)
    names = [row["demangledName"] for row in rows(first, KERNEL)]
    assert names == ["void f<float>(float*)", "own1", "void f<float>(float*)", "own2"]
    assert first.lost == {"something": 3}
    assert len(first) == 6
    kept = first.before(200)  # launches are at 100 and 200
    assert {row["correlationId"] for table in (KERNEL, LAUNCH) for row in rows(kept, table)} == {1}
    assert len(kept) == 3


def test_a_column_that_no_export_has_is_a_mistake() -> None:
    with pytest.raises(KeyError, match="gridW"):
        Records().add(KERNEL, {"start": [1], "end": [2], "gridW": [3]})


# ------------------------------------------------------- end to end: made-up kernels for operators recorded here


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv2d(1, 4, 3)
        self.body = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 3))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = F.max_pool2d(torch.relu(self.conv(x)), 2)  # LINE pool
        out: torch.Tensor = self.body(x.mean((2, 3)))  # LINE body
        return out


def train() -> None:
    net = Net()
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1, momentum=0.9)
    loss = F.cross_entropy(net(torch.randn(2, 1, 8, 8)), torch.tensor([0, 2]))  # LINE loss
    loss.backward()
    optimizer.step()


def leaves(events: list[tuple[int, int, int]]) -> list[int]:
    """Of (thread, start, end), the numbers of those in whose middle nothing else runs."""
    out = []
    for number, (thread, start, end) in enumerate(events):
        middle = (start + end) // 2
        inside = [e for e in events if e[0] == thread and e[1] <= middle <= e[2] and e[1] >= start and e[2] <= end]
        if len(inside) == 1:
            out.append(number)
    return out


def launched(number: int, thread: int, middle: int) -> list[DeviceEvent]:
    """A launch, and the kernel that it starts; every fifth launch copies as well."""
    start = middle + 10_000_000
    found = [
        DeviceEvent("cuda_runtime", "cudaLaunchKernel", middle, middle + 1, 0, thread, number, {"cbid": 211}),
        DeviceEvent(
            "kernel", f"void kernel_{number}<float>(float*)", start, start + 100 + number, 0, 7 + number % 2, number,
            {"device": 0, "context": 1, "stream": 7 + number % 2, "correlation": number,
             "grid": [number % 40 + 1, 2, 1], "block": [64, 1, 1],
             "registers per thread": 32, "shared memory": 16 * (number % 40 + 1)},
        ),
    ]  # fmt: skip
    if number % 5 == 0:
        found.append(DeviceEvent("gpu_memcpy", "Memcpy HtoD (Pinned -> Device)", start, start + 9, 0, 7, number,
                                 {"device": 0, "stream": 7, "correlation": number, "bytes": 4096}))  # fmt: skip
    return found


correlations = itertools.count(1)  # CUPTI counts on over all windows of a process


def fabricate(result: Any) -> Iterator[DeviceEvent]:
    """In place of `kineto_device.events`."""
    events = [event for event in result.events() if event.activity_type() == "cpu_op"]
    events = [event for event in events if not event.name().startswith("profiler::")]
    times = [(event.device_resource_id(), event.start_ns(), event.end_ns()) for event in events]
    for number in leaves(times):
        thread, start, end = times[number]
        yield from launched(next(correlations), thread, (start + end) // 2)


@pytest.fixture
def gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    """A GPU that torch's profiler can record."""
    monkeypatch.setattr(layer, "kineto_missing", lambda: "")
    monkeypatch.setattr(kineto_device, "events", fabricate)


def on_the_cpu(path: Path, folder: Path) -> Any:
    """The same recording without its device tables: what is known of the operators themselves."""
    import shutil
    import sqlite3

    copy = folder / "cpu.sqlite"
    shutil.copy(path, copy)
    connection = sqlite3.connect(copy)
    for table in (*TABLES, "PYPROF_KERNEL"):
        connection.execute(f"drop table if exists {table}")
    connection.commit()
    connection.close()
    return pyprof.load(copy)


def compare(path: Path, folder: Path) -> Any:
    """Each kernel is said to be of the call that its operator is of. Returns the kernels' table."""
    found, cpu = pyprof.load(path), on_the_cpu(path, folder)
    operators = cpu.table.assign(begin=cpu.rows.start + cpu.trace.t0, finish=cpu.rows.end + cpu.trace.t0)
    launch = found.rows.launch_start.values + found.trace.t0
    assert found.rows.launch_start.mask().all()
    kernels = found.table.assign(launch=launch, correlation=found.rows.correlation.values)
    checked = 0
    for kernel in kernels.itertuples():
        # An operator that ends as the launch begins has not made it: a child may end at its parent's middle.
        around = operators[(operators.begin <= kernel.launch) & (operators.finish > kernel.launch)]
        around = around[around.tid == kernel.tid]
        if not len(around):
            continue  # of the engine itself, no operator
        operator = around.loc[(around.finish - around.begin).idxmin()]
        for name in ("op", "mod", "dir", "phase", "module", "trace", "seq", "params"):
            theirs, ours = operator[name], getattr(kernel, name)
            assert (pd.isna(ours) and pd.isna(theirs)) or ours == theirs, (name, kernel)
        checked += 1
    assert checked > 20
    assert checked > 0.8 * len(kernels)
    return kernels


def test_kernels_belong_to_the_operators_that_launched_them(record: Record, gpu: None, tmp_path: Path) -> None:
    recorded = record(train)
    kernels = compare(recorded.path, tmp_path)
    number = kernels.correlation.iloc[0]
    first = kernels.iloc[0]
    assert first.kernel == f"kernel_{number}"
    assert (first.grid, first.block) == (f"{number % 40 + 1},2,1", "64,1,1")
    assert (str(first.device), first.stream, first.sil) == ("0", 7 + number % 2, 100 + number)
    # What the user wrote, looked up by hand.
    lines = Path(__file__).read_text().splitlines()
    place = {m: next(i for i, s in enumerate(lines, 1) if s.endswith("# LINE " + m)) for m in ("pool", "body")}
    conv = kernels[kernels.op == "conv2d"]
    assert set(conv.dir) == {"fprop", "bprop"}
    assert set(conv.module) == {"conv"}
    assert all(f"{__file__}:{place['pool']}" in trace for trace in conv.trace)
    assert set(kernels[kernels.op == "linear"].module) == {"body.0", "body.2"}
    assert "optimizer" in set(kernels.phase)
    trace = loader.load(recorded.path)
    assert set(trace.gpu.device.values) == {0}
    shared = trace.gpu.shared_memory
    assert shared.mask()[trace.gpu.kind == 0].all()
    assert shared.values[trace.gpu.kind == 0].tolist() == [
        16 * (n % 40 + 1) for n in trace.gpu.correlation.values[trace.gpu.kind == 0].tolist()
    ]


def test_the_commands_read_such_a_file(record: Record, gpu: None, capsys: pytest.CaptureFixture[str]) -> None:
    from tests.cli import parse, prof

    recorded = record(train)
    net = recorded.path.with_suffix(".dict")
    assert parse([str(recorded.path), "-o", str(net)]) == 0
    capsys.readouterr()
    assert prof(["--csv", "-c", "idx,op,kernel,tc,grid,block,device,stream", str(net)]) == 0
    table = [line.split('","') for line in capsys.readouterr().out.strip().splitlines()]
    relu = [row for row in table if row[1] == "relu"]
    assert relu
    assert relu[0][2].startswith("kernel_")
    assert relu[0][3] == "-"  # not applicable: no matrix product
    assert prof(["-c", "op,kernel", str(recorded.path)]) == 0


def test_the_file_has_the_tables_of_an_export(record: Record, gpu: None, monkeypatch: pytest.MonkeyPatch) -> None:
    properties = SimpleNamespace(
        name="NVIDIA H100", total_memory=80 << 30, multi_processor_count=132, major=9, minor=0, warp_size=32,
        L2_cache_size=50 << 20, regs_per_multiprocessor=65536, shared_memory_per_multiprocessor=233472,
        max_threads_per_multi_processor=2048, uuid="1234",
    )  # fmt: skip
    monkeypatch.setattr("pyprof.capture.recording.gpus", lambda: [gpus.row(0, properties)])
    recorded = record(train)
    for table, columns in TABLES.items():
        found = [name for _, name, *_ in recorded.query(f"pragma table_info({table})")]
        assert found == (list(columns) if table != SYNC and table != SET else [])  # none were recorded
    pid = os.getpid()
    assert recorded.query(f"select distinct globalPid from {KERNEL}") == [(pid << 24,)]
    assert recorded.query(f"select distinct globalTid >> 24 from {LAUNCH}") == [(pid,)]
    here = threading.get_native_id()
    assert (here,) in recorded.query(f"select distinct globalTid & 0xFFFFFF from {LAUNCH}")
    names = recorded.query(f"select distinct value from {LAUNCH} join StringIds on nameId = id")
    assert names == [("cudaLaunchKernel",)]
    joined = f"from {KERNEL} join StringIds on shortName = id where correlationId = "
    [(number,)] = recorded.query(f"select correlationId from {KERNEL} limit 1")
    assert recorded.query(f"select value {joined} {number}") == [(f"kernel_{number}",)]
    copies = recorded.query(f"select bytes, label from {COPY} join ENUM_CUDA_MEMCPY_OPER on copyKind = id")
    assert set(copies) == {(4096, "Host-to-Device")}
    # 64 threads, 2n blocks, 132 multiprocessors of 2048 threads: no limit of theirs is met.
    rows_ = recorded.query(
        f"select gridX, sharedMemory, occupancy from {KERNEL} join PYPROF_KERNEL on kernelId = {KERNEL}.rowid"
    )
    for number, shared, occupancy in rows_:
        assert shared == 16 * number
        assert occupancy == pytest.approx(100 * 2 * number / 132 * 64 / 2048, abs=0.006)
    (device,) = loader.load(recorded.path).devices
    assert (device.number, device.name, device.sm_count, device.compute_capability) == (
        0,
        "NVIDIA H100",
        132,
        "9.0",
    )
    assert dict(recorded.query("select name, value from PYPROF_META"))["collector"] == "kineto"


def test_windows_of_one_file_keep_their_kernels(tmp_path: Path, gpu: None) -> None:
    path = tmp_path / "net.sqlite"
    with pyprof.profile(str(path), warmup=1, active=2) as p:
        for _ in range(4):
            train()
            p.step()
    kernels = compare(path, tmp_path)
    recorded = Recorded(path)
    steps = recorded.query("select start, end from PYPROF_STEP")
    launches = recorded.query(f"select start from {LAUNCH}")
    assert len(steps) == 2
    assert all(steps[0][0] <= start <= steps[1][1] for (start,) in launches)
    assert len(kernels) == len(launches)


def test_the_bound_on_events_cuts_kernels_with_their_operators(
    tmp_path: Path, gpu: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Session, "_count", lambda self: None)  # as where a long backward comes in between
    path = tmp_path / "net.sqlite"
    with pyprof.profile(str(path), max_events=150):
        train()
    recorded = Recorded(path)
    last = max(op.end for op in recorded.ops)
    assert 0 < recorded.query(f"select count(*) from {LAUNCH}")[0][0] < 150
    assert recorded.query(f"select max(start) from {LAUNCH}")[0][0] <= last
    orphans = f"select count(*) from {KERNEL} where correlationId not in (select correlationId from {LAUNCH})"
    assert recorded.query(orphans) == [(0,)]
    assert recorded.table("PYPROF_LOST")["device events after the first 150 events"] > 0


def test_without_device_events_the_file_is_what_it_was(record: Record) -> None:
    recorded = record(train)
    tables = {name for (name,) in recorded.query("select name from sqlite_master where type = 'table'")}
    assert not {*TABLES, "PYPROF_KERNEL", "TARGET_INFO_GPU"} & tables
    assert not [name for name in tables if name.startswith("ENUM")]
    assert recorded.table("PYPROF_META")["collector.missing"] == layer.kineto_missing()


@pytest.mark.parametrize(
    ("cuda", "gpus", "offered", "wanted"),
    [
        (None, 0, False, "this torch was built without CUDA"),
        (
            "13.0",
            0,
            False,
            "torch sees no GPU (no NVIDIA driver was found)",
        ),  # CUPTI is there all the same
        ("13.0", 1, False, "the profiler of this torch was built without CUPTI"),
        ("13.0", 1, True, ""),
    ],
)
def test_why_torchs_profiler_cannot_record_a_gpu(
    cuda: str | None, gpus: int, offered: bool, wanted: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    activity = layer.ProfilerActivity
    monkeypatch.setattr(torch.version, "cuda", cuda)
    monkeypatch.setattr(torch.version, "hip", None)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: gpus)
    monkeypatch.setattr(layer.library, "driver", lambda: "no NVIDIA driver was found")
    found = {activity.CPU, activity.CUDA} if offered else {activity.CPU}
    monkeypatch.setattr(layer, "_supported_activities", lambda: found)
    assert layer.kineto_missing() == wanted


# ------------------------------------------------------------------------------------------ the end of a window


def test_a_window_waits_for_its_kernels_but_not_for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    done: list[int] = []
    monkeypatch.setattr(gpus, "initialized", lambda: True)
    monkeypatch.setattr(torch.cuda, "is_current_stream_capturing", lambda: False)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 3)
    monkeypatch.setattr(torch._C, "_cuda_hasPrimaryContext", lambda number: number != 1, raising=False)
    monkeypatch.setattr(torch.cuda, "synchronize", done.append)
    gpus.finish_kernels()
    assert done == [0, 2]  # no context is made on a device that is not used

    def fails(number: int) -> None:
        raise RuntimeError("an illegal memory access was encountered")

    monkeypatch.setattr(torch.cuda, "synchronize", fails)
    gpus.finish_kernels()

    never, before = threading.Event(), threading.enumerate()
    monkeypatch.setattr(gpus, "LONGEST_S", 0.01)
    monkeypatch.setattr(torch.cuda, "synchronize", lambda number: never.wait())
    waits = threading.Thread(target=gpus.finish_kernels, daemon=True)
    waits.start()
    waits.join(60)
    assert not waits.is_alive()
    never.set()
    for thread in threading.enumerate():  # one that goes on would meet what later tests put in
        if thread not in before:
            thread.join(60)

    def error() -> bool:
        raise RuntimeError("an illegal memory access was encountered")

    monkeypatch.setattr(torch.cuda, "synchronize", done.append)
    for capturing in (lambda: True, error):
        monkeypatch.setattr(torch.cuda, "is_current_stream_capturing", capturing)
        gpus.finish_kernels()
    assert done == [0, 2]
    monkeypatch.setattr(torch.cuda, "get_device_properties", fails)
    assert gpus.gpus() == []


class Graph:
    """In place of a CUDA graph: a build without CUDA has none."""


@pytest.fixture
def followed(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[int]]:
    """Captures are followed; the devices that were waited for."""
    done: list[int] = []
    monkeypatch.setattr(gpus, "initialized", lambda: True)
    monkeypatch.setattr(torch.cuda, "is_current_stream_capturing", lambda: False)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    monkeypatch.setattr(torch._C, "_cuda_hasPrimaryContext", lambda number: True, raising=False)
    monkeypatch.setattr(torch.cuda, "synchronize", done.append)
    monkeypatch.setattr(torch.cuda.CUDAGraph, "capture_begin", lambda self, *args, **kwargs: None)
    monkeypatch.setattr(torch.cuda.CUDAGraph, "capture_end", lambda self: None)
    pyprof.init()
    yield done
    pyprof.shutdown()


def test_nothing_waits_while_another_thread_captures_a_graph(followed: list[int]) -> None:
    capturing, enough = threading.Event(), threading.Event()
    graph: Any = Graph()

    def capture() -> None:
        torch.cuda.CUDAGraph.capture_begin(graph, capture_error_mode="global")
        capturing.set()
        assert enough.wait(30)
        torch.cuda.CUDAGraph.capture_end(graph)

    thread = threading.Thread(target=capture, daemon=True)
    thread.start()
    assert capturing.wait(30)
    gpus.finish_kernels()
    assert followed == []
    enough.set()
    thread.join()
    gpus.finish_kernels()
    assert followed == [0, 1]


def test_a_replay_of_a_graph_is_a_call(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    replayed: list[object] = []
    plain = torch.cuda.CUDAGraph.replay
    monkeypatch.setattr(torch.cuda.CUDAGraph, "replay", replayed.append)
    graph: Any = Graph()
    with pyprof.profile(str(tmp_path / "net.sqlite")):
        torch.cuda.CUDAGraph.replay(graph)
    torch.cuda.CUDAGraph.replay(graph)
    assert replayed == [graph, graph]
    assert torch.cuda.CUDAGraph.replay == replayed.append
    recorded = Recorded(tmp_path / "net.sqlite")
    assert recorded.names == ["torch.cuda.CUDAGraph.replay"]
    monkeypatch.undo()
    assert torch.cuda.CUDAGraph.replay is plain


def whole_capture(graph: Any) -> None:
    torch.cuda.CUDAGraph.capture_begin(graph)
    torch.cuda.CUDAGraph.capture_end(graph)


def test_a_capture_that_fails_or_is_thrown_away_is_none(followed: list[int], monkeypatch: pytest.MonkeyPatch) -> None:
    graph: Any = Graph()
    torch.cuda.CUDAGraph.capture_begin(graph)
    assert len(captures) == 1
    del graph
    assert not captures

    def fails(*args: Any, **kwargs: Any) -> None:
        raise RuntimeError("operation failed due to a previous error during capture")

    pyprof.shutdown()
    for name in ("capture_end", "capture_begin"):
        monkeypatch.setattr(torch.cuda.CUDAGraph, name, fails)
        pyprof.init()
        graph = Graph()
        with pytest.raises(RuntimeError, match="previous error"):
            whole_capture(graph)
        assert not captures
        pyprof.shutdown()
    gpus.finish_kernels()
    assert followed == [0, 1]


def test_a_capture_begins_when_our_waiting_has_ended(followed: list[int], monkeypatch: pytest.MonkeyPatch) -> None:
    order: list[str] = []
    waiting, graph = threading.Event(), Graph()

    def synchronize(number: int) -> None:
        waiting.set()
        while not captures and thread.is_alive():  # until the other thread is about to begin
            pass
        order.append(f"waited for {number}")

    def capture() -> None:
        assert waiting.wait(30)
        captures.begin(graph)
        order.append("captures")

    monkeypatch.setattr(torch.cuda, "synchronize", synchronize)
    thread = threading.Thread(target=capture)
    thread.start()
    gpus.finish_kernels()
    thread.join()
    captures.end(graph)
    assert order == ["waited for 0", "captures"]  # and the second device is not waited for


def test_torchs_cupti_monitor_begins_after_we_have_given_way(
    record: Record, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """It frees the buffers that CUPTI has of us."""
    given_way: list[bool] = []

    def prepare_trace(self: Any) -> None:
        assert control.session is not None
        given_way.append(control.session.operators_given_up)

    profile = torch.profiler.profiler._KinetoProfile
    monkeypatch.setattr(profile, "prepare_trace", prepare_trace)

    def body() -> None:
        torch.ones(2) + 1
        for monitor in (False, True):
            profile.prepare_trace(SimpleNamespace(_use_cupti_monitor=monitor))  # type: ignore[arg-type]

    record(body)
    assert given_way == [False, True]
    assert "operators are left to it" in capsys.readouterr().err


def test_a_window_inside_the_users_profile_says_who_had_the_gpu(record: Record, gpu: None) -> None:
    pyprof.init()
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]):
        recorded = record(train)
    assert recorded.table("PYPROF_META")["collector.missing"] == "the program's own torch.profiler was running"
    assert not recorded.query("select name from sqlite_master where name like 'CUPTI%'")


def test_zero_kernels_of_a_program_that_uses_cuda_are_told_loudly(
    record: Record, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(layer, "kineto_missing", lambda: "")
    monkeypatch.setattr(kineto_device, "events", lambda result: iter(()))
    record(train)
    assert "NO KERNELS" not in capsys.readouterr().err  # the program did not use CUDA
    monkeypatch.setattr(layer, "initialized", lambda: True)
    record(train)
    assert "NO KERNELS were recorded" in capsys.readouterr().err


def test_device_events_that_are_not_understood_cost_only_themselves(
    record: Record, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(result: Any) -> Iterator[DeviceEvent]:
        yield kernel()
        raise TypeError("a new version")

    monkeypatch.setattr(layer, "kineto_missing", lambda: "")
    monkeypatch.setattr(kineto_device, "events", broken)
    recorded = record(train)
    assert "aten::conv2d" in {op.name for op in recorded.ops}
    lost = recorded.table("PYPROF_LOST")
    assert lost == {"readings of Kineto whose device events were not understood": 1}


# ------------------------------------------------------------------------------- a machine without a driver


@pytest.mark.parametrize(
    ("collector", "sentence"),
    [
        ("auto", ""),
        ("none", ""),
        ("kineto", "pyprof: the collector kineto records no kernels: {kineto}."),
        ("cupti", "pyprof: the collector cupti records no kernels: {cupti}."),
    ],
)
def test_without_a_driver_a_collector_says_why(
    collector: str, sentence: str, record: Record, capsys: pytest.CaptureFixture[str]
) -> None:
    recorded = record(train, collector=collector)
    reasons = pyprof.available()
    assert list(reasons) == ["kineto", "cupti"]
    assert all(reasons.values())
    said = [line for line in capsys.readouterr().err.splitlines() if line.startswith("pyprof: ")]
    assert said == ([sentence.format(**reasons)] if sentence else [])
    assert "conv2d" in {call.marker.call.op for call in recorded.calls}
    assert "aten::conv2d" in {op.name for op in recorded.ops}


@pytest.mark.parametrize("collector", ["kineto", "cupti"])
def test_the_command_says_it_too_and_records_the_rest(
    collector: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "argv", list(sys.argv))
    monkeypatch.setattr(sys, "path", list(sys.path))
    path = tmp_path / "net.sqlite"
    script = ROOT / "examples" / "lenet.py"
    assert main(["run", "--quiet", "--collector", collector, "-o", str(path), str(script)]) == 0
    sentences = [line for line in capsys.readouterr().err.splitlines() if line.startswith("pyprof: ")]
    reason = pyprof.available()[collector]
    assert sentences == [f"pyprof: the collector {collector} records no kernels: {reason}."]
    assert "torch.nn.functional.conv2d" in Recorded(path).names
    assert Recorded(path).ops


def test_init_names_the_collector_of_later_windows(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pyprof.init(collector="cupti")
    for number, own in enumerate((None, "none")):
        with pyprof.profile(str(tmp_path / f"{number}.sqlite"), collector=own):
            train()
    said = [line for line in capsys.readouterr().err.splitlines() if "the collector" in line]
    assert len(said) == 1
    pyprof.shutdown()
    pyprof.start(str(tmp_path / "2.sqlite"))
    pyprof.stop()
    assert "the collector" not in capsys.readouterr().err


def test_info_without_a_file_says_who_records_here(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(layer, "kineto_missing", lambda: "")
    monkeypatch.setattr(layer, "cupti_missing", lambda: "there is no driver")
    assert main(["info"]) == 0
    assert capsys.readouterr().out == "kineto  records the GPU\ncupti   no: there is no driver\n"


def test_a_collector_that_there_is_not() -> None:
    for entry in (pyprof.init, pyprof.profile, pyprof.start):
        with pytest.raises(UsageError, match="auto, kineto, cupti, none"):
            entry(collector="nsys")
    with pytest.raises(SystemExit, match="2"):
        main(["run", "--collector", "nsys", "x.py"])
