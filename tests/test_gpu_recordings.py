# SPDX-License-Identifier: Apache-2.0
"""Recordings of an H100: what PyProf says of them, against torch's own trace, hardware counters and the definition."""

from __future__ import annotations

import csv
import gzip
import json
import sqlite3
from collections import Counter
from contextlib import closing
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

import pyprof
from pyprof import profiles
from pyprof.capture.collectors.cupti import records
from pyprof.capture.collectors.cupti.decode import Buffer, Names, decode
from pyprof.capture.collectors.device import COPY, KERNEL, LAUNCH, SYNC
from pyprof.costs import kernels as kernel_names
from tests.build import scratch

FOLDER = Path(__file__).parent / "traces/gpu"
BOTH = sorted(path.name.partition(".")[0] for path in FOLDER.glob("*.pt.trace.json.gz"))
PROGRAMS = [name for name in BOTH if (FOLDER / f"{name}.sqlite.gz").exists()]
CAPTURES = sorted(path.name.removesuffix(".sqlite.gz") for path in FOLDER.glob("*.sqlite.gz"))
# Claims about all of them are tested on these, and on the others with PYPROF_LONG=1.
FEW = ("transformer_bf16", "two_streams", "products", "graph_replay", "loader_workers_memory", "counters")
EXTERNAL = 39  # CUPTI_ACTIVITY_KIND_EXTERNAL_CORRELATION, of Kineto, 24 bytes: cupti_activity.h
L2 = 52_428_800  # bytes, of the H100


def few(names: list[str]) -> list[Any]:
    return [name if name in FEW else pytest.param(name, marks=pytest.mark.long) for name in names]


@cache
def unpacked(name: str) -> Path:
    path = Path(scratch()) / name
    path.write_bytes(gzip.decompress((FOLDER / f"{name}.gz").read_bytes()))
    return path


@cache
def captured(name: str) -> profiles.Profile:
    return profiles.load(unpacked(f"{name}.sqlite"))


@cache
def traced(name: str) -> profiles.Profile:
    return profiles.load(unpacked(f"{name}.pt.trace.json"))


def kernels(profile: profiles.Profile) -> pd.DataFrame:
    frame = profile.kernels
    return frame[frame["kind"] == "kernel"]


@pytest.mark.parametrize("name", few(PROGRAMS))
def test_a_capture_has_the_kernels_of_torchs_trace(name: str):
    ours, theirs = kernels(captured(name)), kernels(traced(name))
    assert Counter(ours["full_name"]) == Counter(theirs["full_name"])
    raw = json.loads(unpacked(f"{name}.pt.trace.json").read_bytes())["traceEvents"]
    assert len(theirs) == sum(event.get("cat") == "kernel" for event in raw)


@pytest.mark.parametrize("name", few([name for name in PROGRAMS if name != "loader_workers"]))  # its loader's threads
def test_a_capture_has_the_operators_of_torchs_trace(name: str):
    raw = json.loads(unpacked(f"{name}.pt.trace.json").read_bytes())["traceEvents"]
    theirs = Counter(event["name"] for event in raw if event.get("cat") == "cpu_op")
    database = sqlite3.connect(unpacked(f"{name}.sqlite"))
    query = "select value, count(*) from PYPROF_OP o join StringIds s on s.id = o.nameId group by 1"
    ours = Counter(dict(database.execute(query).fetchall()))
    database.close()
    assert ours == theirs


@pytest.mark.parametrize("name", few(CAPTURES))
def test_every_kernel_of_a_capture_is_linked(name: str):
    frame = captured(name).kernels
    assert frame["launch_ns"].notna().all()
    assert (frame["start_ns"] >= frame["launch_ns"]).all()  # the clocks of host and device agree
    if "graph_replay" not in name:
        assert frame["op"].notna().all()
        forward = frame[(frame["op"] != "accumulate_grad") & (frame["direction"] == "fprop")]
        assert forward["source"].notna().all()


@pytest.mark.parametrize("name", few(PROGRAMS))
def test_a_backward_has_its_forwards_line_and_name(name: str):
    for profile in (captured(name), traced(name)):
        frame = kernels(profile)
        backward = frame[(frame["direction"] == "bprop") & (frame["op"] != "accumulate_grad")]
        assert backward["source"].notna().all()
        products = [kernel_names.kind(text) in kernel_names.PRODUCTS for text in backward["full_name"]]
        assert not set(backward["op"][products]) & {"view", "to_copy", "to", "t", "transpose", "unsafe_view"}


@pytest.mark.parametrize("name", few(CAPTURES))
def test_times_count_from_the_earliest_of_all_that_is_shown(name: str):
    """The first step of a capture begins before its first operator."""
    with closing(sqlite3.connect(unpacked(f"{name}.sqlite"))) as raw:
        tables = {row[0] for row in raw.execute("select name from sqlite_master where type = 'table'")}
        columns = {
            table: {row[1] for row in raw.execute(f'pragma table_info("{table}")')} & {"start", "time"}
            for table in tables if table.startswith(("PYPROF_", "NVTX_", "CUPTI_"))
        }  # fmt: skip
        times = [
            raw.execute(f'select min("{column}") from "{table}"').fetchone()[0]
            for table, found in columns.items() for column in found
        ]  # fmt: skip
        starts = [row[0] for row in raw.execute("select start from PYPROF_STEP order by start")]
    zero = min(time for time in times if time is not None)
    stored = captured(name).database.rows("select start_ns from step order by start_ns")
    assert [row[0] for row in stored] == [start - zero for start in starts]
    earliest = [
        captured(name).database.rows(f"select min(start_ns) from {table}")[0][0]
        for table in ("event", "op", "api", "range", "step", "pause", "iteration", "track")
    ]
    assert min(time for time in earliest if time is not None) == 0


@pytest.mark.parametrize("name", few(PROGRAMS))
def test_the_ledger_closes(name: str):
    for profile in (captured(name), traced(name)):
        frame, table = kernels(profile), profile.report("coverage")
        for line, rows in table.groupby("line"):
            assert rows["time"].sum() == frame["duration_ns"][frame["step"].notna()].sum(), line


def test_products_have_the_flops_of_the_definition():
    frame = kernels(captured("products"))
    n, batch = 2048, 16
    expected = {
        "mm": 2 * 5 * [2 * n**3], "int_mm": 2 * [2 * n**3], "scaled_mm": 2 * [2 * n**3], "mv": 2 * [2 * n**2],
        "bmm": 2 * [2 * batch * 256**3], "einsum": 2 * [2 * batch * 256**3],
    }  # fmt: skip
    for op, flops in expected.items():
        own = frame[frame["op"] == op].groupby(["op_id", "step"])["flops"].sum()
        assert sorted(own) == flops, op
    # In the order of the program: float32, TF32, float16, bfloat16, float64, which an H100 has on tensor cores as well.
    used = frame[frame["op"] == "mm"].sort_values("start_ns")["tc"].astype(str)
    assert used.tolist() == 2 * ["0", "1", "1", "1", "1"]
    assert set(frame[frame["op"].isin(["int_mm", "scaled_mm", "bmm"])]["tc"].astype(str)) == {"1"}


@cache
def counted() -> tuple[pd.DataFrame, list[dict[str, Any]]]:
    """What PyProf says of each launch, and what the hardware counted, in the order of launches."""
    frame = kernels(captured("counters")).sort_values("start_ns").reset_index(drop=True)
    rows = list(csv.DictReader(unpacked("counters.csv").read_text().splitlines()))
    return frame, [
        {key: value if key in ("range", "kernel") else float(value) for key, value in row.items()} for row in rows
    ]


def test_tensor_cores_are_used_where_the_hardware_counts_operations():
    frame, rows = counted()
    assert len(frame) == len(rows)
    for (_, kernel), row in zip(frame.iterrows(), rows):
        used = kernel_names.tensor_core(kernel["full_name"])
        assert used in (None, row["tensor_ops"] > 0), row["kernel"]
        assert str(kernel["tc"]) in ("<NA>", str(int(row["tensor_ops"] > 0))), row["kernel"]


def test_flops_of_products_are_those_that_the_hardware_counts():
    """To the last one. Only tiles of causal attention that cross the diagonal make the hardware do more than needed."""
    frame, rows = counted()
    pairs = [(kernel, row) for (_, kernel), row in zip(frame.iterrows(), rows) if row["tensor_ops"]]
    assert len(pairs) == 14
    more = [(kernel, row) for kernel, row in pairs if kernel["flops"] != row["tensor_ops"]]
    assert len(more) == 2  # forward and backward
    for kernel, row in more:
        assert kernel_names.kind(kernel["full_name"]) == "attention"
        assert 1 < row["tensor_ops"] / kernel["flops"] < 1 + 2 * 64 / 2048  # blocks of up to 128 rows, of 2048


def test_bytes_of_a_kernel_that_streams_are_moved_but_for_the_cache():
    """What the definition needs is read and written, except for what the L2 cache still holds before and after."""
    frame, rows = counted()
    streaming = (
        "add fp32", "add bf16", "gelu bf16", "silu fp32", "cast", "transpose copy", "softmax bf16", "layer_norm bf16",
        "sum fp32", "sum rows fp32", "dropout", "adamw fused", "cat", "where", "upsample", "cumsum", "embedding",
    )  # fmt: skip
    compared = 0
    for (_, kernel), row in zip(frame.iterrows(), rows):
        if row["range"] in streaming and kernel["bytes"] > 4 * L2:
            assert kernel["bytes"] - L2 <= row["dram_bytes"] <= 1.1 * kernel["bytes"], row["range"]
            compared += 1
    assert compared >= 5


def test_resources_of_a_launch_are_those_of_the_hardware():
    frame, rows = counted()
    connection = sqlite3.connect(unpacked("counters.sqlite"))
    found = connection.execute(
        "select registersPerThread, sharedMemory, occupancy, gridX * gridY * gridZ from CUPTI_ACTIVITY_KIND_KERNEL k "
        "join PYPROF_KERNEL p on p.kernelId = k.rowid order by k.start"
    ).fetchall()
    connection.close()
    assert len(found) == len(rows) == len(frame)
    full = 0
    for (registers, shared, occupancy, _), row in zip(found, rows):
        assert registers == row["registers"]
        assert shared == row["static_shared"] + row["dynamic_shared"]
        if row["waves"] >= 1:  # else the grid does not fill the device, and Kineto's estimate says so
            assert occupancy == pytest.approx(row["occupancy"], abs=0.01), row["kernel"]
            full += 1
    assert full > 30


def test_records_of_cupti_are_decoded():
    data = np.frombuffer(unpacked("cupti_records.bin").read_bytes(), np.uint8)
    names = json.loads(unpacked("cupti_names.json").read_text())
    texts = {int(address): text for address, text in names["texts"].items()}

    def call(driver: bool, number: int) -> str:
        return str(names["calls"][f"{'driver' if driver else 'runtime'} {number}"])

    found = decode([Buffer(data, len(data))], records.sizes(130001) | {EXTERNAL: 24}, Names(texts.__getitem__, call))
    assert found.lost == {}
    assert found.count(KERNEL) == 1000 + 2 * 20  # a product of these sizes is split along k, and added up
    assert found.count(COPY) == 1
    assert found.column(COPY, "bytes").tolist() == [256 * 256 * 4]
    launches = Counter(found.names[code] for code in found.column(LAUNCH, "nameId").tolist())
    assert launches["cudaLaunchKernel"] == 1000
    assert launches["cudaLaunchKernelExC"] == 40
    assert found.count(SYNC) > 0
    assert set(found.column(KERNEL, "correlationId")) <= set(found.column(LAUNCH, "correlationId"))
    start, end = found.column(KERNEL, "start"), found.column(KERNEL, "end")
    assert (end > start).all()
    assert set(found.column(KERNEL, "deviceId")) == {0}
    additions = found.column(KERNEL, "gridX")[found.column(KERNEL, "registersPerThread") > 0]
    assert (additions > 0).all()


def test_a_replay_of_a_graph_has_the_line_of_its_call():
    frame = kernels(captured("graph_replay"))
    replayed = frame[frame["op"] == "cudagraph.replay"]
    assert len(replayed) > 40
    assert replayed["source"].str.contains("programs.py").all()
    assert replayed["flops"].isna().all()  # unknown is not zero


def test_kernels_of_inductor_have_costs_in_torchs_trace():
    frame = kernels(traced("compiled_bf16"))
    fused = frame[frame["name"].str.startswith("triton_")]
    assert len(fused) > 100
    assert fused["bytes"].notna().all()
    assert set(fused["op"]) == set(fused["name"])


def test_memory_and_synchronizations_are_recorded():
    profile = captured("loader_workers_memory")
    assert pyprof.load(unpacked("loader_workers_memory.sqlite")).report("memory") is not None
    assert len(profile.report("alive"))


def test_every_kernel_of_a_training_has_costs():
    frame = kernels(captured("transformer_bf16"))
    assert frame["flops"].notna().all()
    assert frame["bytes"].notna().all()
    # The gradient of q, k and v cannot be viewed as that of their product: it is read and written.
    copied = frame[(frame["op"] == "view") & (frame["direction"] == "bprop")]
    assert copied["bytes"].tolist() == 2 * 4 * [2 * 4 * 512 * 3 * 512 * 2]
    assert copied["flops"].tolist() == 2 * 4 * [0]


@pytest.mark.parametrize("name", few(PROGRAMS))
def test_reports_agree_on_the_time_of_all_kernels(name: str):
    """Of an execution of an operator time counts once, although kernels of one stream overlap on an H100 (programmatic
    dependent launch); torch's own operator events have the sum."""
    for profile in (captured(name), traced(name)):
        executions: dict[int, list[tuple[int, int]]] = {}
        for op, start, length in profile.database.rows(
            """select op, e.start_ns, duration_ns from event e join iteration i
               on e.id >= first_event and e.id < last_event where iteration_set = 1"""
        ):
            executions.setdefault(op, []).append((start, start + length))
        union = 0
        for spans in executions.values():
            last = 0
            for start, end in sorted(spans):
                union += max(end - max(start, last), 0)
                last = max(last, end)
        for report, column in (
            ("op_type", "gpu"), ("detail", "gpu"), ("module", "device_self_ns"), ("source_line", "device_self_ns"),
        ):  # fmt: skip
            assert profile.report(report)[column].sum() == union, report
        total = sum(end - start for spans in executions.values() for start, end in spans)
        assert profile.report("operator")["device_self_ns"].sum() == total
        assert profile.kernels["duration_ns"][profile.kernels["step"].notna()].sum() == total
        frame = kernels(profile)
        assert profile.report("kernel_summary")["total_ns"].sum() == frame["duration_ns"][frame["step"].notna()].sum()


@pytest.mark.parametrize("name", ["transformer_bf16", "two_streams", "generation"])
@pytest.mark.parametrize("by", ["step", "operator", "kernel"])
def test_a_run_does_not_differ_from_itself(name: str, by: str):
    for profile in (captured(name), traced(name)):
        table = profile.diff(profile, by=by)
        assert len(table)
        for column in table:
            if column.startswith("delta_"):
                assert not table[column].fillna(0).any(), column


def test_a_product_under_autocast_moves_16_bits():
    frame = kernels(captured("transformer_bf16"))
    head = frame[(frame["module"] == "head") & frame["name"].str.startswith("nvjet")]
    rows, inside, outside = 4 * 512, 512, 8192
    operands = rows * inside + inside * outside + rows * outside
    assert head["bytes"].tolist() == 2 * 3 * [2 * operands]  # forward, two gradients; two steps
    assert head["flops"].tolist() == 2 * 3 * [2 * rows * inside * outside]
    casts = frame[frame["full_name"].str.contains("bfloat16_copy_kernel") & (frame["op"] == "linear")]
    assert len(casts)
    assert (casts["bytes"] > 0).all()  # 4 bytes read, 2 written: of its own operator


@pytest.mark.parametrize("name", few(CAPTURES))
def test_no_product_is_faster_than_the_roofline(name: str):
    """Data of small products may come from the L2 cache, whose bandwidth is above the roofline's."""
    frame = kernels(captured(name))
    products = np.array([kernel_names.kind(text) in kernel_names.PRODUCTS for text in frame["full_name"]], bool)
    large = frame[products & (frame["bytes"] > L2)]
    assert (large["roofline_ns"].dropna() <= large["duration_ns"][large["roofline_ns"].notna()]).all()


def test_what_prepares_a_gradient_carries_none_of_it():
    frame = kernels(captured("resnet_channels_last"))
    helpers = frame[frame["full_name"].str.contains("init_device_workspace")]
    assert len(helpers) == 2 * 4
    assert (helpers["flops"] == 0).all()
    backward = frame[(frame["op"] == "conv2d") & (frame["direction"] == "bprop")]
    backward = backward[~backward["full_name"].str.contains("CUDAFunctor")]  # the engine adds gradients of a residual
    for part in ("_dgrad_", "_wgrad_"):  # each gradient is one product of the size of the forward
        own = backward[backward["full_name"].str.contains(part)].groupby(["op_id", "step"])["flops"].sum()
        whole = backward.groupby(["op_id", "step"])["flops"].sum().loc[own.index]
        assert set((whole / own).round(6)) <= {1.0, 2.0}


def test_waits_for_launches_have_one_value():
    """The finding, the bar of the mean step and the report of idle time: two steps, both steady, and no data loader."""
    profile = captured("transformer_bf16")
    idle = profile.report("idle", by="cause").set_index("cause")["total_ns"]
    steps = profile.report("step_time", categories="phase")
    findings = profile.report("expert_systems").set_index("rule")
    assert not steps["partial"].any()
    assert steps["launch_bound_ns"].sum() == idle["launch-bound"]
    assert findings.loc["R05 launch_bound", "saving"] == idle["launch-bound"]
    assert steps["total_ns"].sum() == steps.filter(regex="_ns$").drop(columns="total_ns").sum().sum()


def test_recordings_of_two_tools_match_in_a_comparison():
    """torch.profiler has no optimizer as an operator, and other names for some: their kernels are the same."""
    table = captured("transformer_bf16").diff(traced("transformer_bf16"), by="operator")
    matched = table.set_index("matched_by")
    (optimizer,) = table[table["name"] == "optimizer"].to_dict("records")
    for side, profile in (("base", captured("transformer_bf16")), ("other", traced("transformer_bf16"))):
        frame = kernels(profile)
        own = frame["duration_ns"][frame["phase"] == "optimizer"].sum() / 2  # two steps
        assert optimizer[f"{side}_device_ns"] == own
        whole = table[f"{side}_device_ns"].sum()
        alone = table[f"{side}_device_ns"][table["matched_by"].isna()].sum()
        assert alone < 0.002 * whole  # a division that one has as two kernels
    both = matched.loc[["kernels"]].set_index(["name", "direction"])
    loss = both.loc[("cross_entropy / cross_entropy_loss", "bprop")]
    assert loss["base_calls"] == loss["other_calls"] == 1


def test_an_optimizer_is_neither_forward_nor_backward(tmp_path: Path):
    """And matches that of an older database, which has it as forward."""
    profile = captured("transformer_bf16")
    detail = profile.report("detail")
    optimizer = detail[detail["name"] == "adamw.step"]
    assert len(optimizer)
    assert optimizer["direction"].isna().all()
    assert set(detail["direction"].dropna()) == {"fprop", "bprop"}
    older = tmp_path / "older_dldb.sqlite"
    profile.save(older)
    with sqlite3.connect(older) as database:
        changed = database.execute("update operator set direction = 0 where phase = 3").rowcount
    database.close()
    assert changed
    table = profiles.load(older).diff(profile, by="operator", per="run")
    assert set(table["matched_by"]) == {"module and shapes"}
    assert not table["delta_device_ns"].any()
