# SPDX-License-Identifier: Apache-2.0
"""Launch and kernel by their numbers in traces of torch.profiler: External ids, shared correlations, merged ranks."""

from __future__ import annotations

from pathlib import Path

import pytest

from pyprof.parse import loader
from pyprof.parse.missing_work import count
from pyprof.parse.rows import Rows, rows
from tests import kineto
from tests.kineto import Event, event, kernel, launch, op

US = 1_000
UNKNOWN = "launches of GPU events that share the number of a call that starts one kernel"
RANKS = "launches of GPU events with equal numbers: traces of several ranks in one file; give the folder of the ranks"


def load(tmp_path: Path, events: list[Event]) -> Rows:
    return rows(loader.load(kineto.write(tmp_path / "t.json", events)))


def operators(table: Rows) -> dict[str, str | None]:
    """The operator of each kernel, by the kernel's name."""
    return {
        table.names[name]: (table.sites[site].ops or (None,))[-1] and table.sites[site].ops[-1].removeprefix("aten::")
        for name, site in zip(table.name.tolist(), table.site.tolist())
    }


# --- no correlation


def called(number: int, names: list[str], ids: list[int], call: str = "hipLaunchKernel") -> list[Event]:
    """An operator of 100 us with External id 100 + number that launches these kernels, whose ids are given."""
    start = 200 * US * number
    out = [op(f"aten::op{number}", start, start + 100 * US, **{"External id": 100 + number})]
    for i, (name, id_) in enumerate(zip(names, ids)):
        at = start + (10 + 20 * i) * US
        out += [
            event("cuda_runtime", call, at, at + 5 * US, kineto.PID, kineto.TID, **{"External id": id_}),
            event("kernel", name, at + 8 * US, at + 18 * US, 2, 0, **{"External id": id_}),
        ]
    return out


@pytest.mark.parametrize(
    "ids",
    [((25, 26), (27,)), ((100, 100), (101,)), ((7, 7), (7,))],
    ids=["own", "of the operator", "all equal"],
)
def test_equal_external_ids_link_where_nothing_has_a_correlation(tmp_path: Path, ids: tuple[tuple[int, ...], ...]):
    events = [*called(0, ["a", "b"], list(ids[0])), *called(1, ["c"], list(ids[1]))]
    wait = event(
        "cuda_runtime",
        "hipDeviceSynchronize",
        0,
        1 * US,
        kineto.PID,
        kineto.TID,
        **{"External id": ids[0][0]},
    )
    table = load(tmp_path, [wait, *events])
    assert operators(table) == {"a": "op0", "b": "op0", "c": "op1"}
    assert table.launch_start.values.tolist() == [10 * US, 30 * US, 210 * US]
    assert table.lost == {}


def test_operators_and_kernels_without_any_call(tmp_path: Path):
    events = [one for n in range(3) for one in called(n, [f"k{n}"], [100 + n]) if one["cat"] != "cuda_runtime"]
    assert operators(load(tmp_path, events)) == {"k0": "op0", "k1": "op1", "k2": "op2"}
    # Numbered separately, as the times say: a kernel with the id of an operator after it.
    events[1]["args"]["External id"] = 102
    assert set(operators(load(tmp_path, events)).values()) == {None}


def test_a_correlation_precedes_an_external_id(tmp_path: Path):
    events = [*called(0, ["a"], [1]), *called(1, ["b"], [2])]
    for number, one in zip((11, 12, 12, 11), (e for e in events if e["cat"] != "cpu_op")):
        one["args"]["correlation"] = number  # the kernels are each other's
    assert operators(load(tmp_path, events)) == {"a": "op1", "b": "op0"}


# --- two kernels share a correlation


def pairs(correlations: list[int], call: str = "hipLaunchKernel", streams: list[int] | None = None) -> list[Event]:
    """Operators of 50 us, each with a call, numbered from 1, and a kernel with a given number."""
    out = []
    for i, number in enumerate(correlations):
        start = 100 * US * i
        out += [
            op(f"aten::op{i}", start, start + 50 * US),
            launch(start + 10 * US, start + 15 * US, i + 1, name=call),
        ]
        if number:
            out.append(kernel(f"k{i}", start + 30 * US, start + 60 * US, number, (streams or [7] * 9)[i]))
    return out


@pytest.mark.parametrize("correlations", [[1, 1, 3, 3], [1, 1, 1, 4], [2, 2, 3, 4], [3, 3, 3, 4], [1, 3, 3, 5, 5]])
def test_the_order_of_launches_decides(tmp_path: Path, correlations: list[int]):
    table = load(tmp_path, pairs(correlations))
    assert operators(table) == {f"k{i}": f"op{i}" for i in range(len(correlations))}
    (reason,) = table.lost
    assert reason.startswith("GPU events with the number of another launch")


@pytest.mark.parametrize(
    ("correlations", "streams", "unknown", "lacking"),
    [
        ([1, 1, 0, 4], None, {"k0", "k1"}, 1),  # one of three calls has no kernel: which?
        ([0, 2, 2, 4], None, {"k1", "k2"}, 1),
        ([1, 1, 3], [7, 8, 7], {"k0", "k1"}, 0),  # streams have no common order
    ],
)
def test_otherwise_the_launch_is_unknown(
    tmp_path: Path, correlations: list[int], streams: list[int] | None, unknown: set[str], lacking: int
):
    table = load(tmp_path, pairs(correlations, streams=streams))
    assert {name for name, one in operators(table).items() if one is None} == unknown
    assert table.lost[UNKNOWN] == 2
    assert count(table.lost) == lacking


def test_a_second_kernel_without_any_call_left_is_unknown(tmp_path: Path):
    table = load(tmp_path, [*pairs([1, 2]), kernel("extra", 900 * US, 950 * US, 1)])
    assert operators(table) == {"k0": "op0", "k1": "op1", "extra": None}
    assert table.lost[UNKNOWN] == 1


def test_replays_of_graphs_start_many(tmp_path: Path):
    table = load(tmp_path, [*pairs([1], "hipGraphLaunch"), kernel("second", 80 * US, 90 * US, 1)])
    assert operators(table) == {"k0": "op0", "second": "op0"}
    assert table.lost == {}


# --- ranks in one file


def rank(name: str, pid: int, device: int) -> list[Event]:
    out = []
    for i in range(3):
        start = 500 * US * i
        out += [
            op(f"aten::{name}", start, start + 60 * US, pid=pid, tid=pid),
            launch(start + 10 * US, start + 14 * US, i + 1, pid) | {"pid": pid},
            kernel(f"kernel of {name}", start + 80 * US, start + 130 * US, i + 1, device=device),
        ]
    return out


@pytest.mark.parametrize(("other", "device"), [(200, 0), (200, 1), (100, 0), (100, 1)])
def test_ranks_in_one_file_are_not_mixed(tmp_path: Path, other: int, device: int):
    table = load(tmp_path, [*rank("mm", 100, 0), *rank("relu", other, device)])
    assert set(operators(table).values()) == {None}
    assert table.lost[RANKS] == 6


def test_ranks_whose_numbers_differ_are_told_apart(tmp_path: Path):
    second = rank("relu", 200, 1)
    for one in second:
        if "correlation" in one["args"]:
            one["args"]["correlation"] += 100
    table = load(tmp_path, [*rank("mm", 100, 0), *second])
    assert operators(table) == {"kernel of mm": "mm", "kernel of relu": "relu"}
    assert table.lost == {}
