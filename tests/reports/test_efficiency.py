# SPDX-License-Identifier: Apache-2.0
"""Efficiency, HFU, MFU, limit and use of tensor cores of groups of kernels are what plain Python makes of the columns
that `prof.py` prints for each kernel."""

from __future__ import annotations

import math
import os
import sqlite3
from collections import defaultdict
from collections.abc import Callable, Iterable
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

import pyprof
from pyprof import metrics, profiles
from pyprof.costs.columns import COLUMNS, Reals, Texts, View
from pyprof.measures import efficiency
from pyprof.views.roofline import roofline
from tests.build import Recording, recording, scratch, write_capture
from tests.reports.test_oracle import random_recording, seeds

RESNET = "kineto/resnet50_v100_6steps.pt.trace.json.gz"
RECORDINGS = (
    "nsys/cifar_rtx2070_pyprof_markers.sqlite", "kineto/h100_bert_small.json.gz",
    pytest.param(RESNET, marks=pytest.mark.long),
)  # fmt: skip


# Why a kernel has no roofline, in the order in which they are asked.
ALGORITHM = "it computes by Winograd or FFT: fewer FLOPs than its definition has, and it is unknown how many"
WHY = (
    "launched by no operator that was recorded",
    "the shapes of its operator were not recorded",
    "its FLOPs are not known: its operator has no formula for them, or they depend on values",
    "its bytes are not known: its operator has no formula for them, or they depend on values",
    "the peak of the GPU for its type is not known",
)


def cells(view: View, key: str) -> list[Any]:
    """A column of `prof.py`, unrounded; None is unknown."""
    found = COLUMNS[key].cells(view)
    if isinstance(found, Texts):
        return [found.texts[code] for code in found.codes.tolist()]
    if isinstance(found, Reals):
        return [None if math.isnan(value) else value for value in found.values.tolist()]
    return [value if known else None for value, known in zip(found.values.tolist(), found.mask().tolist())]


def printed(prof: profiles.Profile) -> dict[tuple[Any, ...], dict[str, Any]]:
    """What `prof.py` prints of each kernel, by start, length and name."""
    view = View(prof.rows, prof.hardware)
    keys = ("sil", "roof", "hfu", "mfu", "bound", "tcwhy", "tc", "effwhy")
    columns = zip(*(cells(view, key) for key in ("start", *keys)))
    names = [view.rows.names[code] for code in view.rows.name.tolist()]
    return {(row[0], row[1], name): dict(zip(keys, row[1:])) for row, name in zip(columns, names)}


def kernels(prof: profiles.Profile) -> list[dict[str, Any]]:
    """The kernels of the aggregation, with what `prof.py` prints of each, and what they belong to."""
    window, whole = prof.aggregation, printed(prof)
    found = prof.database.rows(
        """select e.start_ns, e.duration_ns, n.name, n.short_name, o.op_id, s.op, case when o.unassociated then 0
                  when o.shapes is null then 1 when e.flops is null then 2 when e.bytes is null then 3 else 4 end
           from event e
           join iteration i on e.id >= i.first_event and e.id < i.last_event
           join kernel_name n on n.id = e.name join operator o on o.id = e.operator left join site s on s.id = e.site
           where e.kind in (0, 3) and i.iteration_set = ? and i.number between ? and ?""",
        (window.iteration_set, window.first, window.last),
    )
    return [
        whole[start, length, name] | {"name": name, "kernel": short, "op_id": op_id, "site": site, "why": why}
        for start, length, name, short, op_id, site, why in found
    ]


def peak_time(row: dict[str, Any], key: str) -> float:
    """Time at the peak, in ns; whole ps in the database."""
    return round(10 * row[key] * row["sil"]) / 1000


def by_hand(rows: list[dict[str, Any]], gpu: bool) -> dict[str, Any]:
    total = sum(row["sil"] for row in rows)
    out: dict[str, Any] = {}

    def share(needed: list[float], times: list[int], complete: bool) -> float | None:
        if not gpu or not sum(times) or (not sum(needed) and not complete):
            return None
        return 100 * sum(needed) / sum(times)

    rooted = [row for row in rows if row["roof"] is not None]
    # Of a row above the peak no HFU is printed; what it executes is what the model needs here.
    executed = [row for row in rows if row["hfu"] is not None or "than the peak" in str(row["effwhy"])]
    defined = [row for row in rooted if "fewer multiplications" not in str(row["effwhy"])]  # no Winograd
    times = [row["sil"] for row in defined]
    roofs = [round(row["roof"]) for row in defined]  # whole ns in the database
    helpers = bool(rows) and all(row["bound"] in ("-", None) for row in rows) and "-" in {r["bound"] for r in rows}
    out["efficiency"] = None if helpers else share(roofs, times, sum(times) == total)
    out["roofline_known"] = 100 * sum(times) / total if gpu and total else None
    times = [row["sil"] for row in rooted]
    needed = [peak_time(row, "mfu") for row in rooted if row["mfu"] is not None]
    out["mfu"] = share(needed, times, sum(times) == total)
    times = [row["sil"] for row in executed]
    needed = [peak_time(row, "mfu" if row["hfu"] is None else "hfu") for row in executed]
    out["hfu"] = share(needed, times, sum(times) == total)
    if out["hfu"] is not None and out["hfu"] > 105:
        out["hfu"] = None
    out["hfu_known"] = 100 * sum(times) / total if gpu and total else None
    for key in ("bound", "tcwhy"):
        time: dict[str, int] = defaultdict(int)
        for row in rows:
            if row[key] is not None:
                time[row[key]] += row["sil"]
        work = {text: value for text, value in time.items() if text != "-"}
        most = min(work, key=lambda text: (-work[text], text)) if work else "-" if time else None
        out[key] = most
        known = sum(work.values())
        out[f"{key}_share"] = 100 * work[most] / known if most in work and known else None
    idle = sum(row["sil"] for row in rows if row["tc"] not in ("1", "-"))
    missing = [0] * len(WHY)
    for row in rows:
        missing[row["why"]] += row["sil"] if row["roof"] is None else 0
    missing.append(sum(row["sil"] for row in rooted) - sum(row["sil"] for row in defined))
    out["roofline_why"] = (*WHY, ALGORITHM)[missing.index(max(missing))] if gpu and max(missing) else None
    if out["efficiency"] is not None and out["efficiency"] > 100:
        out["roofline_why"] = "faster than memory: its data was in a cache, and it is unknown how much"
    if gpu and helpers:
        out["roofline_why"] = "another kernel of its call carries the work"
    if gpu and rows and not total:
        out["roofline_why"] = "it took no time"
    low = out["efficiency"] is not None and out["efficiency"] < 40
    if low and out["bound"] in ("compute", "memory") and not idle:
        out |= {"bound": "latency", "bound_share": None}
    if out["efficiency"] is not None and out["efficiency"] > 100:
        out["efficiency"] = None
        if out["bound"] == "memory":
            out |= {"bound": "cache", "bound_share": None}
    return out


def same(found: dict[str, Any], rows: list[dict[str, Any]], gpu: bool) -> None:
    expected = by_hand(rows, gpu)
    for key in efficiency.KEYS:
        value = None if found[key] is None or found[key] != found[key] else found[key]
        if isinstance(value, float) and expected[key] is not None:
            rounded = 0.1 / min(row["sil"] or 1 for row in rows)  # of whole ps
            assert value == pytest.approx(expected[key], rel=1e-6, abs=rounded), (key, found)
        else:
            assert value == expected[key], (key, found)


def groups(rows: Iterable[dict[str, Any]], *keys: str) -> dict[tuple[Any, ...], list[dict[str, Any]]]:
    out: dict[tuple[Any, ...], list[dict[str, Any]]] = defaultdict(list)
    for row in rows:
        out[tuple(row[key] for key in keys)].append(row)
    return out


def table(prof: profiles.Profile, name: str, **options: str) -> list[dict[str, Any]]:
    frame = prof.report(name, **options).astype(object)
    rows: list[dict[str, Any]] = frame.where(frame.notna(), None).to_dict("records")
    return rows


def compare(prof: profiles.Profile) -> int:
    """Every row of the four reports; return how many were compared."""
    all_kernels, gpu, compared = kernels(prof), prof.source().gpu, 0
    for name, keys, options in (
        ("detail", ("op_id",), {}), ("kernel", ("op_id", "kernel"), {}), ("kernel_summary", ("name",), {}),
        ("kernel_summary", ("name", "operator"), {"by": "operator"}),
    ):  # fmt: skip
        hand = groups(all_kernels, *("site" if key == "operator" else key for key in keys))
        for row in table(prof, name, **options):
            own = hand.pop(tuple(row[key] for key in keys), [])
            if row.get("kind") in (None, "kernel", "operator") and own:
                same(row, own, gpu)
                compared += 1
            else:
                assert all(row[key] is None for key in efficiency.KEYS if key != "roofline_why")
                copied = row.get("kind") in ("memcpy", "memset")
                none = "copies and sets have none" if copied else "it launched no kernel itself"
                assert row["roofline_why"] == (none if gpu else None)
        # The others leave out copies, and what operators launched that began before the window.
        assert not hand or name != "kernel"
    return compared


@pytest.mark.parametrize("file", RECORDINGS)
def test_figures_of_a_recording_add_up_by_hand(data: Path, file: str):
    prof = pyprof.load(data / file)
    assert compare(prof) > 60
    # By operators of torch, where the innermost one of a launch is known from its place in the program too.
    hand, compared = groups(kernels(prof), "site"), 0
    for row in table(prof, "operator"):
        own = hand.get((row["name"],), [])
        if own and sum(one["sil"] for one in own) == row["device_self_ns"]:
            same(row, own, True)
            compared += 1
    assert compared >= (4 if file.startswith("kineto") else 0)


def test_no_group_is_above_the_roofline(recorded: Callable[[str], profiles.Profile]):
    """Of ResNet-50 on a V100 some were, by the definition of Winograd's convolutions (up to 170 %), a mean's backward
    (119 %) whose gradient is expanded, and additions of tensors that the L2 of 6 MiB holds (up to 145 %)."""
    prof = recorded(RESNET)
    for name in ("detail", "kernel", "kernel_summary", "operator"):
        assert not (prof.report(name)["efficiency"].astype(float) > 100).any()
    value = prof.source().window
    assert (metrics.value("roofline_efficiency", value) or 0) <= 100


@pytest.mark.long
def test_the_chart_says_which_kernels_may_lie_above_the_roof(data: Path):
    """Names of kernels in calls that a kernel named after Winograd is part of, from the table of `prof.py`."""
    prof = pyprof.load(data / RESNET)
    table = prof.table
    names = set(table["kernel"][table["effwhy"].astype(str).str.startswith("Winograd")])
    assert {"volta_sgemm_64x64_nt", "cudnn::winograd_nonfused::winogradForwardData4x4"} <= names
    chart = roofline(prof.source(), 500)
    assert chart.notes[-1].startswith(f"{len(names)} kernels compute convolutions by Winograd or FFT.")
    assert max(point.efficiency or 0 for point in chart.points) <= 100


def on_a_v100(path: Path, what: Recording) -> profiles.Profile:
    """Recorded on a GPU whose peaks are known; nothing is known of its second device."""
    write_capture(path, what)
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute("update TARGET_INFO_GPU set name = 'Tesla V100-SXM2-16GB'")
    return profiles.load(path)


@seeds(6, 30)
def test_figures_of_random_recordings_add_up_by_hand(seed: int):
    prof = on_a_v100(Path(os.path.join(scratch(), "a.sqlite")), random_recording(seed))
    compare(prof)
    last = prof.aggregation.last
    if last:
        prof.aggregate(1, last)
        compare(prof)


def test_unknown_is_not_zero(tmp_path: Path):
    """Of an operator without a formula nothing is known, however many zeros its helpers have."""
    prof = on_a_v100(tmp_path / "a.sqlite", recording("op seq=1 mine::thing\n    > 100 my_kernel"))
    (row,) = table(prof, "operator")
    assert row["device_self_ns"] == 100
    assert [row[key] for key in ("efficiency", "hfu", "mfu", "bound", "bound_share")] == [None] * 5
    assert (row["roofline_known"], row["hfu_known"]) == (0, 0)
    assert row["roofline_why"] == "the shapes of its operator were not recorded"


MM = "{'pyprof': 1, 'mod': 'torch', 'op': 'mm', 'args': [%s, %s]}"


def product(dtype: str, size: int) -> str:
    tensor = f"{{'name': '', 'type': 'tensor', 'shape': ({size}, {size}), 'dtype': '{dtype}'}}"
    return MM % (tensor, tensor)


def test_one_operator_of_two_kernels(tmp_path: Path):
    """A V100 has 15.7 TFLOP/s in float32 and 900 GB/s: 2 * 64^3 FLOPs take 33.395 ns, 3 * 64^2 * 4 bytes 54.6 ns."""
    text = f"{product('float32', 64)}\n    > 100 volta_sgemm_128x64_nn\n    > 50 splitKreduce_kernel\n"
    prof = on_a_v100(tmp_path / "a.sqlite", recording(text))
    (row,) = table(prof, "detail")
    assert row["efficiency"] == pytest.approx(100 * 55 / 150)
    assert row["hfu"] == row["mfu"] == pytest.approx(100 * 33.395 / 150, rel=1e-4)
    assert (row["roofline_known"], row["hfu_known"], row["tcwhy_share"]) == (100, 100, 100)
    # Below 40 %, but tensor cores have not been tried: memory, of the only kernel that carries work.
    assert (row["bound"], row["bound_share"]) == ("memory", 100)
    assert row["tcwhy"].startswith("float32: TF32 needs compute capability 8.0")
    first = {row["kernel"]: row for row in table(prof, "kernel")}["splitKreduce_kernel"]
    assert (first["efficiency"], first["bound"]) == (None, "-")  # another kernel carries the work: not 0 %
