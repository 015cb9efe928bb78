# SPDX-License-Identifier: Apache-2.0
"""CUPTI's records: buffers decoded as a slow decoder of this file decodes them, and the collector against a stand-in
for libcupti, as there is no GPU.

The layouts in `stand_in.py` are those of cupti_activity.h written once more, field after field, so that a wrong offset
in the code is not in the test as well.
"""

from __future__ import annotations

import ctypes
import os
import random
import re
import struct
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch

import pyprof
from pyprof.capture.collectors import kineto_device, layer
from pyprof.capture.collectors.cupti import collector, library, pool, records
from pyprof.capture.collectors.cupti.collector import Cupti, Reading, to_unix
from pyprof.capture.collectors.cupti.decode import Buffer, Names, decode
from pyprof.capture.collectors.cupti.library import CuptiError, Library
from pyprof.capture.collectors.device import COPY, KERNEL, LAUNCH, SET, SYNC
from pyprof.core.errors import CaptureError

from .conftest import Recorded
from .stand_in import LAYOUTS, MARKER, MARKER_BYTES, Fake, layouts
from .test_device import compare, fabricate, rows, train

ROOT = Path(__file__).resolve().parents[2]

_TEXTS = ["_ZN2at6native4reluEv", "volta_sgemm_128x64_nn", "naïve_kernel"]
_STRINGS = [ctypes.create_string_buffer(text.encode()) for text in _TEXTS]
ADDRESSES = [ctypes.addressof(buffer) for buffer in _STRINGS]
NAMES = Names(library.text, lambda driver, number: f"{'cu' if driver else 'cuda'}{number}")


def some(rng: random.Random, version: int, count: int, marker: bool = False) -> list[bytes]:
    """Records of all kinds with every field filled."""
    known = layouts(version)
    out = []
    for number in range(count):
        kind = rng.choice([10, 10, 10, 5, 5, 5, 4, 1, 2, 22, 38] + [MARKER] * marker)
        if kind == MARKER:
            out.append(struct.pack("<i", MARKER) + rng.randbytes(MARKER_BYTES - 4))
            continue
        values = {name: rng.randrange(1, 100) for name in known[kind].names}
        values |= {"kind": kind, "start": 10**9 + number, "end": 10**9 + number + rng.randrange(1, 10**6)}
        values |= {"correlation": rng.randrange(1, count), "src": rng.randrange(8), "dst": rng.randrange(8)}
        values |= {
            "memory": rng.randrange(8),
            "launch_type": rng.randrange(3),
            "name": rng.choice([*ADDRESSES, 0]),
        }
        values |= {
            "copy_kind": rng.randrange(11),
            "thread": rng.randrange(1, 1 << 22),
            "result": rng.randrange(900),
        }
        values |= {
            "graph_node": rng.choice([0, 1 << 40]),
            "graph": rng.choice([0, 3]),
            "pad": 0xAB,
            "grid_id": 1 << 40,
        }
        if kind == 38:
            values |= {"stream": rng.choice([7, 0xFFFFFFFF]), "event": rng.choice([3, 0xFFFFFFFF])}
        out.append(known[kind].pack({name: values[name] for name in known[kind].names}))
    return out


def buffers(data: list[bytes], size: int = 1 << 12) -> list[Buffer]:
    """Records laid into buffers as CUPTI does: no record goes over the end of one."""
    out: list[bytearray] = [bytearray()]
    for record in data:
        if len(out[-1]) + len(record) > size:
            out.append(bytearray())
        out[-1] += record
    full = []
    for part in out:
        space = np.full(size, 0xEE, np.uint8)  # what is behind the valid bytes is anything
        space[: len(part)] = np.frombuffer(part, np.uint8)
        full.append(Buffer(space, len(part)))
    return full


def slow(data: list[bytes], version: int) -> dict[str, list[dict[str, Any]]]:
    """The rows of some records, one field at a time."""
    known = layouts(version)
    out: dict[str, list[dict[str, Any]]] = {table: [] for table in (KERNEL, COPY, SET, SYNC, LAUNCH)}
    calls: dict[int, list[dict[str, int]]] = {5: [], 4: []}
    for record in data:
        (kind,) = struct.unpack_from("<i", record)
        if kind == MARKER:
            continue
        r = known[kind].unpack(record, 0)
        if kind in calls:
            calls[kind].append(r)
            continue
        row: dict[str, Any] = {"start": r["start"], "end": r["end"], "contextId": r["context"],
                               "streamId": r["stream"], "correlationId": r["correlation"]}  # fmt: skip
        if kind == 38:
            row["streamId"] = None if r["stream"] == 0xFFFFFFFF else r["stream"]
            row["eventId"] = None if r["event"] == 0xFFFFFFFF else r["event"]
            out[SYNC].append({**row, "syncType": r["type"]})
            continue
        row |= {"deviceId": r["device"], "graphNodeId": r["graph_node"] or None}
        memory = {0: None, **{number: number - 1 for number in range(1, 8)}}
        if kind == 10:
            text = {**dict(zip(ADDRESSES, _TEXTS)), 0: "?"}[r["name"]]
            row |= {"mangledName": text, "demangledName": {_TEXTS[0]: "at::native::relu()"}.get(text, text)}
            for what in ("grid", "block", "cluster"):
                row |= {f"{what}{axis.upper()}": r[f"{what}_{axis}"] for axis in "xyz"}
            row |= {
                "registersPerThread": r["registers"], "staticSharedMemory": r["static"],
                "dynamicSharedMemory": r["dynamic"], "localMemoryPerThread": r["local_thread"],
                "localMemoryTotal": r["local_total_v2"], "gridId": r["grid_id"], "launchType": r["launch_type"] + 1,
                "sharedMemoryExecuted": r["shared_executed"], "graphId": r["graph"] or None,
                "clusterSchedulingPolicy": r["scheduling"], "maxPotentialClusterSize": r["potential"],
                "maxActiveClusters": r["active"],
            }  # fmt: skip
            out[KERNEL].append(row)
        elif kind == 2:
            out[SET].append({**row, "value": r["value"], "bytes": r["bytes"], "memKind": memory[r["memory"]]})
        else:
            row |= {"bytes": r["bytes"], "copyKind": r["copy_kind"]}
            row |= {"srcKind": memory[r["src"]], "dstKind": memory[r["dst"]]}
            if kind == 22:
                row |= {"srcDeviceId": r["src_device"], "srcContextId": r["src_context"]}
                row |= {"dstDeviceId": r["dst_device"], "dstContextId": r["dst_context"]}
            out[COPY].append(row)
    started = {row["correlationId"] for table in (KERNEL, COPY, SET, SYNC) for row in out[table]}
    outer = {r["correlation"] for r in calls[5]}
    for kind, found in calls.items():
        for r in found:
            if kind == 5 or (r["correlation"] in started and r["correlation"] not in outer):
                out[LAUNCH].append({
                    "start": r["start"], "end": r["end"], "eventClass": 5 - kind, "globalTid": r["thread"],
                    "correlationId": r["correlation"], "nameId": f"{'cu' if kind == 4 else 'cuda'}{r['cbid']}",
                    "returnValue": r["result"],
                })  # fmt: skip
    return out


def same(found: Any, expected: dict[str, list[dict[str, Any]]]) -> None:
    for table, theirs in expected.items():
        key = repr
        ours = [dict(sorted(row.items())) for row in rows(found, table)]
        assert sorted(ours, key=key) == sorted((dict(sorted(row.items())) for row in theirs), key=key), table


# ---------------------------------------------------------------------------------------------------- decoding


@pytest.mark.parametrize("version", LAYOUTS)
def test_records_have_the_sizes_of_the_header(version: int) -> None:
    sizes = records.sizes(version)
    assert sizes == {kind: layout.struct.size for kind, layout in layouts(version).items()}
    for kind, size in sizes.items():
        assert size >= records.required(kind)
        assert not size % 8


def test_versions_in_between_and_later_ones() -> None:
    assert records.sizes(20) == records.sizes(24)
    assert records.sizes(130000)[records.KERNEL] == 216
    assert records.sizes(130202) == records.sizes(130100)
    assert records.sizes(999999) == records.sizes(130401)


def test_layouts_agree_with_cupti_python() -> None:
    cupti = pytest.importorskip("cupti.cupti", reason="cupti-python is not installed")
    names = {
        records.KERNEL: "kernel", records.MEMCPY: "memcpy", records.MEMSET: "memset", records.RUNTIME: "api",
        records.SYNC: "synchronization", records.PEER_COPY: "memcpy_pto_p",
    }  # fmt: skip
    compared = 0
    for kind, name in names.items():
        for attribute in dir(cupti):
            if not re.fullmatch(rf"activity_{name}\d*_dtype", attribute):
                continue
            theirs = getattr(cupti, attribute)
            ours = records.dtype(kind, theirs.itemsize)
            assert theirs.itemsize in {records.sizes(version)[kind] for version in LAYOUTS}, attribute
            for field in ours.names or ():
                assert ours.fields[field][1] == theirs.fields[field][1], (attribute, field)
                assert ours.fields[field][0].itemsize == theirs.fields[field][0].itemsize, (attribute, field)
                compared += 1
    assert compared > 50


@pytest.mark.parametrize("version", LAYOUTS)
def test_buffers_decode_as_the_slow_way(version: int) -> None:
    data = some(random.Random(version), version, 400)
    found = decode(buffers(data), records.sizes(version), NAMES)
    same(found, slow(data, version))
    assert found.lost == {}


@pytest.mark.parametrize("seed", range(8))
def test_kinds_that_nobody_reads_are_stepped_over(seed: int) -> None:
    """The library knows how long they are; it is asked once per kind."""
    rng = random.Random(seed)
    data = some(rng, 130001, rng.randrange(1, 120), marker=True)
    real = {**{kind: layout.struct.size for kind, layout in layouts(130001).items()}, MARKER: MARKER_BYTES}
    asked: list[int] = []

    def next_record(buffer: Any, valid: int, place: int) -> int | None:
        kind = int(buffer[place : place + 4].view(np.int32)[0])
        following = place + real[kind]
        if following >= valid:
            return None
        asked.append(kind)
        return following

    found = decode(buffers(data, 1 << 11), records.sizes(130001), NAMES, next_record=next_record)
    same(found, slow(data, 130001))
    assert len(asked) == len(set(asked))
    # A marker that is the last of its buffer and the first of its kind cannot be measured: it is told.
    assert set(found.lost) <= {"bytes of activity records of an unknown kind"}


def test_an_unknown_kind_ends_its_buffer_and_is_counted() -> None:
    rng = random.Random(3)
    before, after, other = (some(rng, 130001, 20) for _ in range(3))
    first = buffers([*before, struct.pack("<i", MARKER) + bytes(52), *after], 1 << 14)
    second = buffers(other, 1 << 14)
    found = decode([*first, *second], records.sizes(130001), NAMES)
    same(found, slow(before + other, 130001))
    assert found.lost == {"bytes of activity records of an unknown kind": 56 + sum(map(len, after))}


def test_a_record_that_is_cut_off_is_counted() -> None:
    data = some(random.Random(5), 130001, 30)
    (buffer,) = buffers(data, 1 << 14)
    short = Buffer(buffer.data, buffer.valid - 8)
    found = decode([short], records.sizes(130001), NAMES)
    same(found, slow(data[:-1], 130001))
    assert found.lost == {"activity records cut off at the end of a buffer": 1}
    assert len(decode([Buffer(buffer.data, 0)], records.sizes(130001), NAMES)) == 0


def test_events_without_times_and_those_still_running_are_counted() -> None:
    layout = layouts(130001)[10]
    times = [(5, 9), (0, 0), (7, 0)]
    data = [layout.pack({"kind": 10, "start": start, "end": end, "name": ADDRESSES[0]}) for start, end in times]
    found = decode(buffers(data), records.sizes(130001), NAMES)
    assert [(row["start"], row["end"]) for row in rows(found, KERNEL)] == [(5, 9)]
    assert found.lost == {
        "device events without times": 1,
        "device events that had not ended when the window was closed": 1,
    }


@pytest.mark.parametrize("true_version", [28, 130100, 130401])
def test_the_librarys_word_on_sizes_counts(true_version: int) -> None:
    """A version that we take for another one: records are longer than in our table, or shorter."""
    data = some(random.Random(7), true_version, 60)
    real = {kind: layout.struct.size for kind, layout in layouts(true_version).items()}

    def next_record(buffer: Any, valid: int, place: int) -> int | None:
        following = place + real[int(buffer[place : place + 4].view(np.int32)[0])]
        return following if following < valid else None

    found = decode(buffers(data, 1 << 15), records.sizes(130001), NAMES, next_record=next_record)
    expected = slow(data, true_version)
    same(found, expected)


def test_a_record_too_short_to_be_read_is_refused() -> None:
    data = [layouts(130001)[10].pack({"kind": 10, "start": 5, "end": 9})] * 3
    with pytest.raises(CaptureError, match=r"has 104 bytes, at least \d+ were expected"):
        decode(buffers(data), records.sizes(130001), NAMES, next_record=lambda b, v, place: place + 104)


def test_buffers_filled_by_several_threads() -> None:
    """Kineto's successor in torch has a pool of buffers with callbacks in C++: it takes the place of CUPTI's side."""
    pool: Any = torch._C._profiler
    if not hasattr(pool, "_cupti_monitor_buffer_request_callback_address"):
        pytest.skip("this torch has no native pool of CUPTI buffers")
    pool._cupti_monitor_reset_buffers()
    pool._cupti_monitor_configure_buffers(1 << 14)
    address, size_ = ctypes.POINTER(ctypes.c_void_p), ctypes.POINTER(ctypes.c_size_t)
    requested = ctypes.CFUNCTYPE(None, address, size_, size_)
    completed = ctypes.CFUNCTYPE(
        None, ctypes.c_void_p, ctypes.c_uint32, ctypes.c_void_p, ctypes.c_size_t, ctypes.c_size_t
    )
    request = requested(pool._cupti_monitor_buffer_request_callback_address())
    complete = completed(pool._cupti_monitor_buffer_complete_callback_address())
    parts = [some(random.Random(seed), 130001, 50) for seed in range(4)]

    def fill(part: list[bytes]) -> None:
        buffer, size, most = ctypes.c_void_p(), ctypes.c_size_t(), ctypes.c_size_t()
        request(ctypes.byref(buffer), ctypes.byref(size), ctypes.byref(most))
        data = b"".join(part)
        assert buffer.value is not None
        assert len(data) <= size.value == 1 << 14
        ctypes.memmove(buffer, data, len(data))
        complete(None, 0, buffer, size, len(data))

    threads = [threading.Thread(target=fill, args=(part,)) for part in parts]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    taken = []
    for _ in parts:
        address, valid, *_ = pool._cupti_monitor_get_completed()
        whole = (ctypes.c_uint8 * (1 << 14)).from_address(address)
        taken.append(Buffer(np.frombuffer(whole, np.uint8).copy(), valid))
        pool._cupti_monitor_return_buffer(address)
    pool._cupti_monitor_shutdown_buffers()
    pool._cupti_monitor_reset_buffers()
    found = decode(taken, records.sizes(130001), NAMES)
    same(found, slow([record for part in parts for record in part], 130001))


def test_the_clocks_are_brought_together() -> None:
    first, last = Reading(10**15, 10**18), Reading(10**15 + 10**10, 10**18 + 10**10 + 2000)  # 0.2 ppm apart
    times = np.array([10**15, 10**15 + 5 * 10**9, 10**15 + 10**10], np.int64)
    assert to_unix(times, first, last).tolist() == [10**18, 10**18 + 5 * 10**9 + 1000, 10**18 + 10**10 + 2000]
    assert to_unix(times[:1], first, first).tolist() == [10**18]  # a window of no time


# --------------------------------------------------------------------- the library, and a stand-in for it


def timed(data: list[bytes], now: int) -> list[bytes]:
    """The same records with times from now on."""
    out = []
    for record in data:
        start = {5: 8, 4: 8, 38: 8}.get(struct.unpack_from("<i", record)[0], 16)
        begin, end = struct.unpack_from("<QQ", record, start)
        out.append(record[:start] + struct.pack("<QQ", begin - 10**9 + now, end - 10**9 + now) + record[start + 16 :])
    return out


def is_left_out(record: bytes) -> bool:
    kind, function = struct.unpack_from("<ii", record)
    return kind == 5 and function in collector._IDLE_RUNTIME


def test_a_window_of_cupti(fake: Fake) -> None:
    cupti = Cupti(fake.library, sync=True)
    cupti.start()
    assert fake.enabled == {*collector.KINDS, records.SYNC}
    assert fake.thread_ids == library.SYSTEM_THREADS
    assert len(fake.left_out()) == len(collector._IDLE_RUNTIME) + len(collector._IDLE_DRIVER)
    began = time.time_ns()
    data = timed(some(random.Random(11), 130001, 500), fake.now())
    fake.add(data)
    fake.dropped(7)
    cupti.stop()
    assert fake.enabled == set()
    assert fake.thread_ids == 0
    assert fake.left_out() == set()
    found = cupti.records
    assert found.lost == {"activity records that CUPTI dropped": 7}
    times = {table: found.column(table, "start") for table in (KERNEL, COPY, SET, SYNC, LAUNCH)}
    for starts in times.values():
        assert len(starts)
        assert starts.min() >= began - 10**7
        assert starts.max() <= time.time_ns() + 10**7
    expected = slow([record for record in data if not is_left_out(record)], 130001)
    assert {table: len(starts) for table, starts in times.items()} == {t: len(r) for t, r in expected.items()}
    assert {row["mangledName"] for row in rows(found, KERNEL)} == {*_TEXTS, "?"}


def test_synchronisations_are_recorded_on_request(fake: Fake) -> None:
    cupti = Cupti(fake.library)
    cupti.start()
    assert fake.enabled == set(collector.KINDS)
    cupti.stop()


def test_records_on_another_clock_are_refused(fake: Fake) -> None:
    cupti = Cupti(fake.library)
    cupti.start()
    call = layouts(130001)[5]
    now = time.time_ns()
    fake.add([call.pack({"kind": 5, "cbid": 211, "start": now, "end": now + 9, "correlation": 1})])
    with pytest.raises(CaptureError, match=r"another profiler has set a different one\. Use the collector kineto"):
        cupti.stop()
    assert not len(cupti.records)


def test_calls_have_the_names_of_the_library(fake: Fake) -> None:
    assert fake.library.call_name(False, 211) == "cudaLaunchKernel"
    assert fake.library.call_name(True, 307) == "cuLaunchKernel"
    assert fake.library.call_name(True, 999) == "driver call 999"


def kernels(count: int) -> list[bytes]:
    kernel = layouts(130001)[10]
    return [kernel.pack({"kind": 10, "start": 5, "end": 9, "correlation": n}) for n in range(count)]


def test_more_than_one_buffer_and_more_than_there_may_be(fake: Fake, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pool, "BUFFER_BYTES", 1 << 12)
    cupti = Cupti(fake.library)
    cupti.start()
    fake.add(kernels(100))
    cupti.bound()
    assert fake.enabled
    cupti.stop()
    assert sorted(row["correlationId"] for row in rows(cupti.records, KERNEL)) == list(range(100))
    assert pool._allocated() == 0  # nothing is held

    monkeypatch.setattr(pool, "MOST_BUFFERS", 3)
    cupti = Cupti(fake.library)
    cupti.start()
    fake.add(kernels(100))
    cupti.bound()
    cupti.bound()
    assert fake.enabled == set()
    assert fake.left_out() == set()
    fake.add(kernels(100))
    cupti.stop()
    assert cupti.records.count(KERNEL) == 100  # what was there is kept
    assert cupti.records.lost == {"windows whose end lacks device events: 1 GiB of activity records was reached": 1}


def test_buffers_that_cupti_keeps_are_not_freed(fake: Fake, monkeypatch: pytest.MonkeyPatch) -> None:
    """torch would free them while CUPTI writes to them."""
    monkeypatch.setattr(pool, "BUFFER_BYTES", 1 << 12)
    cupti = Cupti(fake.library)
    cupti.start()
    fake.add(kernels(30))
    with monkeypatch.context() as patch:
        patch.setattr(Library, "flush", lambda self: None)
        cupti.stop()
    assert cupti.records.count(KERNEL) == 18  # a buffer of 4 KiB
    assert pool._allocated() == 2
    cupti.start()
    fake.add(kernels(1))
    cupti.stop()
    assert pool._allocated() == 0


def test_buffers_of_others_go_back_to_them(fake: Fake) -> None:
    """torch's list would take Kineto's for its own, and free them."""
    fake.kineto_start([10])
    fake.launch(1)
    cupti = Cupti(fake.library)
    cupti.start()
    assert (fake.kineto_kernels, fake.kineto_unknown) == (1, 0)
    fake.launch(2)
    cupti.stop()
    fake.kineto_stop()
    assert [row["correlationId"] for row in rows(cupti.records, KERNEL)] == [2]
    assert pool._allocated() == 0


def test_buffers_that_cannot_be_had_cost_their_records(fake: Fake, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pool, "BUFFER_BYTES", 64)  # no kernel fits
    cupti = Cupti(fake.library)
    cupti.start()
    fake.add(kernels(4))
    cupti.stop()
    assert cupti.records.lost == {"activity records that CUPTI dropped": 4}


def test_without_torchs_own_buffers_cupti_is_refused_in_a_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pool, "_requested", None)
    monkeypatch.setattr(library, "load", lambda: pytest.fail("CUPTI was touched"))
    assert layer.cupti_missing() == (
        f"torch {torch.__version__} has no buffers for CUPTI that work without the GIL, and others can "
        "deadlock; use the collector kineto, or torch 2.13"
    )


def test_torchs_own_monitor_is_left_alone(fake: Fake, monkeypatch: pytest.MonkeyPatch) -> None:
    monitor = SimpleNamespace(get_monitor=lambda: object())
    monkeypatch.setitem(sys.modules, "torch.profiler._cupti_monitor", monitor)
    with pytest.raises(CaptureError, match="torch's own CUPTI monitor is running"):
        Cupti(fake.library).start()
    assert fake.enabled == set()


def test_a_second_window_starts_afresh(fake: Fake) -> None:
    cupti = Cupti(fake.library)
    kernel = layouts(130001)[10]
    for number in (1, 2):
        cupti.start()
        fake.add([kernel.pack({"kind": 10, "start": 5, "end": 9, "correlation": number})])
        cupti.stop()
    assert [row["correlationId"] for row in rows(cupti.records, KERNEL)] == [1, 2]


def test_buffers_of_a_window_that_was_given_up_are_not_read(fake: Fake) -> None:
    given_up = Cupti(fake.library)
    given_up.start()
    fake.add(kernels(1))
    fake.library.flush()  # they come back, and nobody asks for them
    cupti = Cupti(fake.library)
    cupti.start()
    assert pool._pending() == 0
    cupti.stop()
    assert cupti.records.count(KERNEL) == 0


def test_a_library_with_other_sizes_is_believed_or_refused(fake: Fake) -> None:
    longer = layouts(130401)[10]
    fake.size(10, longer.struct.size)
    cupti = Cupti(fake.library)
    cupti.start()
    fake.add([longer.pack({"kind": 10, "start": 5, "end": 9, "correlation": n}) for n in range(3)])
    cupti.stop()
    assert [row["correlationId"] for row in rows(cupti.records, KERNEL)] == [0, 1, 2]

    fake.size(10, 48)
    cupti.start()
    fake.add([longer.pack({"kind": 10, "start": 5, "end": 9})[:48]] * 3)
    with pytest.raises(CaptureError, match=r"CONCURRENT_KERNEL has 48 bytes.*Use the collector kineto"):
        cupti.stop()
    assert fake.enabled == set()


@pytest.mark.parametrize("failing", [records.RUNTIME, records.KERNEL, records.MEMSET])
def test_a_kind_that_cannot_be_enabled_leaves_nothing_enabled(failing: int, fake: Fake) -> None:
    fake.error(failing, 8)
    cupti = Cupti(fake.library)
    with pytest.raises(CuptiError, match="cuptiActivityEnable failed with CUPTI_ERROR_FAKE"):
        cupti.start()
    assert fake.enabled == set()
    assert fake.thread_ids == 0
    cupti.stop()
    assert not len(cupti.records)


def test_missing_permission_names_the_remedies_of_the_page(fake: Fake) -> None:
    fake.error(records.KERNEL, 35)
    with pytest.raises(CuptiError) as raised:
        Cupti(fake.library).start()
    assert str(raised.value) == library.PERMISSION
    for remedy in ("NVreg_RestrictProfilingToAdminUsers=0", "sudo modprobe -r", "--privileged", "`sudo`"):
        assert remedy in library.PERMISSION
    page = " ".join((ROOT / "docs" / "troubleshooting.md").read_text(encoding="utf-8").split())
    assert library.PERMISSION in page


def test_reasons_not_to_begin(fake_path: Path, fake: Fake) -> None:
    def reason(find: Callable[[], str | None] = lambda: str(fake_path), driver: Callable[[], str] = lambda: "") -> str:
        with pytest.raises(CaptureError) as raised:
            library.load(find, driver)
        return str(raised.value)

    assert library.load(lambda: str(fake_path), lambda: "").version() == 130001
    assert reason(driver=lambda: "there is no driver") == "there is no driver"
    assert reason(find=lambda: None) == (
        "libcupti was not found; pip install '.[cupti]' in a clone of PyProf's repository installs it"
    )
    assert "libcupti cannot be loaded" in reason(find=lambda: "/nowhere/libcupti.so")
    fake.version(18)
    assert "older than CUDA 12.2" in reason()
    fake.version(130001, 15)
    assert reason() == "cuptiGetVersion failed with CUPTI_ERROR_FAKE"


def test_nothing_of_cupti_is_called_without_a_driver(monkeypatch: pytest.MonkeyPatch) -> None:
    """Some releases crash in their first function then."""

    def never() -> None:
        raise AssertionError("the library was looked for")

    with pytest.raises(CaptureError, match="no driver"):
        library.load(never, lambda: "no driver")


@pytest.mark.parametrize("name", ["CUDA_INJECTION64_PATH", "NSYS_PROFILING_SESSION_ID"])
def test_another_profiler_in_the_process_is_left_alone(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(name, "1")
    monkeypatch.setattr(library, "load", lambda: pytest.fail("CUPTI was touched"))
    assert (
        layer.cupti_missing()
        == f"another profiler is loaded into this process ({name} is set), and CUPTI serves only one"
    )


# ----------------------------------------------------------------------------------------- a whole recording


@pytest.fixture
def on_gpu(fake: Fake, monkeypatch: pytest.MonkeyPatch) -> Iterator[Fake]:
    """CUPTI works here, by the stand-in."""
    monkeypatch.setattr(layer, "cupti_missing", lambda: "")
    monkeypatch.setattr(library, "load", lambda: fake.library)
    yield fake
    pyprof.shutdown()


def test_kernels_of_cupti_belong_to_their_operators(
    on_gpu: Fake, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The events of `test_device.py` as records of CUPTI, made when the operators are known: CUPTI stops after them."""
    kineto_read, stop = layer.Kineto._read, Cupti.stop
    stopped: list[Cupti] = []
    monkeypatch.setattr(Cupti, "stop", lambda self: stopped.append(self))
    monkeypatch.setattr(pool, "now", time.time_ns)  # the clock of the events
    layouts_ = layouts(130001)

    def capture(self: Any, result: Any, cut: Any, marked: int) -> None:
        data = []
        for event in fabricate(result):
            of = event.metadata
            values = {"start": event.start, "end": event.end, "correlation": event.correlation, "context": 1}
            if event.kind == "cuda_runtime":
                data.append(layouts_[5].pack({**values, "kind": 5, "cbid": 211, "thread": event.resource}))
            elif event.kind == "kernel":
                x, y, z = of["grid"]
                grid = {"grid_x": x, "grid_y": y, "grid_z": z, "block_x": 64, "block_y": 1, "block_z": 1}
                data.append(layouts_[10].pack(
                    {**values, **grid, "kind": 10, "stream": of["stream"], "registers": 32, "static": 16,
                     "dynamic": of["shared memory"], "name": ADDRESSES[0]}))  # fmt: skip
        on_gpu.add(data)
        stop(stopped[0])
        kineto_read(self, result, cut, marked)

    monkeypatch.setattr(layer.Kineto, "_read", capture)
    path = tmp_path / "net.sqlite"
    with pyprof.profile(str(path), collector="cupti"):
        train()
    kernels = compare(path, tmp_path)
    assert set(kernels.kernel) == {"relu"}
    assert set(kernels.block) == {"64,1,1"}
    recorded = Recorded(path)
    shared = recorded.query(f"select gridX, staticSharedMemory, dynamicSharedMemory from {KERNEL}")
    assert all((static, dynamic) == (16, 16 * x) for x, static, dynamic in shared)
    assert recorded.query("select sharedMemory from PYPROF_KERNEL") == [(sum(row[1:]),) for row in shared]
    assert recorded.query(f"select distinct value from {KERNEL} join StringIds on mangledName = id") == [(_TEXTS[0],)]
    enum = "ENUM_CUDA_KERNEL_LAUNCH_TYPE"
    assert recorded.query(f"select distinct label from {KERNEL} join {enum} on launchType = id") == [("Regular",)]
    assert recorded.table("PYPROF_META")["collector"] == "cupti"


def test_what_a_warm_up_recorded_is_thrown_away(on_gpu: Fake, tmp_path: Path) -> None:
    path = tmp_path / "net.sqlite"
    with pyprof.profile(str(path), warmup=1, active=1, collector="cupti") as p:
        for correlation in (1, 2):
            kernel = {"kind": 10, "start": 5, "end": 9, "correlation": correlation}
            on_gpu.add([layouts(130001)[10].pack(kernel)])
            torch.ones(2) + 1
            p.step()
    assert Recorded(path).query(f"select correlationId from {KERNEL}") == [(2,)]


def test_kineto_and_cupti_are_not_asked_both(on_gpu: Fake, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(layer, "kineto_missing", lambda: "")
    monkeypatch.setattr(kineto_device, "events", lambda result: pytest.fail("Kineto recorded the GPU as well"))
    with pyprof.profile(str(tmp_path / "net.sqlite"), collector="cupti"):
        torch.ones(2) + 1


def test_the_users_own_profiler_has_cupti_first(
    on_gpu: Fake, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    sentence = "the collector cupti records no kernels: the program's own torch.profiler holds CUPTI."
    activities = [torch.profiler.ProfilerActivity.CPU]
    pyprof.init()
    with (
        torch.profiler.profile(activities=activities),
        pyprof.profile(str(tmp_path / "a.sqlite"), collector="cupti"),
    ):
        torch.ones(2) + 1
        assert on_gpu.enabled == set()
    assert sentence in capsys.readouterr().err
    # Beginning in the middle of our window: CUPTI is let go, what was recorded stays.
    with pyprof.profile(str(tmp_path / "b.sqlite"), collector="cupti"):
        assert on_gpu.enabled
        on_gpu.add([layouts(130001)[10].pack({"kind": 10, "start": 5, "end": 9, "name": ADDRESSES[0]})])
        with torch.profiler.profile(activities=activities):
            assert on_gpu.enabled == set()
            torch.ones(2) + 1
    assert Recorded(tmp_path / "b.sqlite").query(f"select count(*) from {KERNEL}") == [(1,)]
    capsys.readouterr()


def test_records_that_cannot_be_read_cost_the_kernels_not_the_recording(
    on_gpu: Fake, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    on_gpu.size(10, 48)
    path = tmp_path / "net.sqlite"
    with pyprof.profile(str(path), collector="cupti"):
        torch.ones(2) + 1
        on_gpu.add([struct.pack("<i", 10) + bytes(44)] * 3)
    assert "pyprof: the collector cupti records no kernels: CUPTI's record" in capsys.readouterr().err
    assert Recorded(path).ops
    assert "has 48 bytes" in Recorded(path).table("PYPROF_META")["collector.missing"]


def test_a_fault_of_ours_does_not_reach_the_program(
    on_gpu: Fake, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def fails(*arguments: object) -> None:
        raise TypeError("not what was meant")

    for place in ("start", "stop"):
        with monkeypatch.context() as patch:
            patch.setattr(Cupti, place, fails)
            path = tmp_path / f"{place}.sqlite"
            with pyprof.profile(str(path), collector="cupti"):
                torch.ones(2) + 1
        assert Recorded(path).ops
        if place == "start":
            assert "TypeError: not what was meant; please report this." in capsys.readouterr().err


def test_abandoned_windows_leave_nothing_enabled(on_gpu: Fake, tmp_path: Path) -> None:
    def interrupted() -> None:
        with pyprof.profile(str(tmp_path / "net.sqlite"), collector="cupti"):
            assert on_gpu.enabled
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        interrupted()
    assert on_gpu.enabled == set()
    pyprof.start(str(tmp_path / "net.sqlite"), collector="cupti")
    assert on_gpu.enabled
    pyprof.shutdown()
    assert on_gpu.enabled == set()
    assert os.path.exists(tmp_path / "net.sqlite")
