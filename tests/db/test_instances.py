# SPDX-License-Identifier: Apache-2.0
"""Executions of operators: the outermost call, the nodes of one call's backward together, nothing twice."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from pyprof.parse import loader
from pyprof.parse.backward_links import pair
from pyprof.parse.instances import Instances, instances
from pyprof.parse.join import nest_spans
from tests import build

LINEAR = build.classic("linear", (2, 3), (4, 3))
RELU = build.classic("relu", (2, 4))
Read = Callable[[str], Instances]


@pytest.fixture
def read(tmp_path: Path) -> Read:
    def read(text: str) -> Instances:
        trace = loader.load(build.write_nsys(tmp_path / "net.sqlite", build.recording(text)))
        found = nest_spans(trace)
        return instances(trace, found, pair(trace, found))

    return read


def shown(found: Instances) -> list[tuple[str, int, int, int, int, int]]:
    """Operation, direction, start, end, own time and forward of each."""
    ops = [found.sites[code].ops[0] for code in found.site.tolist()]
    directions = [found.sites[code].direction for code in found.site.tolist()]
    columns = (found.start, found.end, found.cpu.values, found.forward)
    return list(zip(ops, directions, *(column.tolist() for column in columns)))


def test_the_outermost_call_is_the_execution(read: Read) -> None:
    found = read(f"""
{LINEAR}
    {RELU}
        aten::relu, seq = 1
            > 5 k
""")
    assert shown(found) == [("linear", 0, 0, 60, 60, -1)]


def test_an_operator_without_a_call_is_one_and_what_is_in_a_call_is_none(read: Read) -> None:
    found = read(f"""
aten::mm, seq = 4
    aten::empty, seq = 5
{RELU}
    aten::relu, seq = 5
        > 5 k
""")
    assert [row[0] for row in shown(found)] == ["aten::mm", "relu"]


NODES = """
thread 2
autograd::engine::evaluate_function: AddmmBackward0
    AddmmBackward0, seq = 3
        > 5 dgrad
autograd::engine::evaluate_function: torch::autograd::AccumulateGrad
    torch::autograd::AccumulateGrad
        > 5 add
autograd::engine::evaluate_function: TBackward0
    TBackward0, seq = 2
"""
FORWARD = f"""
{LINEAR}
    aten::t, seq = 2
    aten::addmm, seq = 3
        > 5 gemm
"""


def test_the_nodes_of_one_call_are_one_execution_of_its_backward(read: Read) -> None:
    found = shown(read(FORWARD + NODES))
    assert [row[:2] for row in found] == [("linear", 0), ("linear", 1), ("accumulate_grad", 1)]
    backward, accumulate = found[1], found[2]
    assert backward[5] == 0
    assert backward[2] < accumulate[2] < accumulate[3] < backward[3]  # between its nodes
    assert backward[4] == backward[3] - backward[2] - (accumulate[3] - accumulate[2]) - 2 * build.TICK


def test_a_second_backward_of_the_same_tape_is_a_second_execution(read: Read) -> None:
    found = shown(read(FORWARD + NODES + NODES))
    assert [row[0] for row in found] == ["linear", "linear", "accumulate_grad", "linear", "accumulate_grad"]
    assert [row[5] for row in found] == [-1, 0, -1, 0, -1]


def test_what_a_checkpoint_recomputes_is_an_execution_and_its_time_is_its_own(read: Read) -> None:
    found = shown(
        read(f"""
autograd::engine::evaluate_function: CheckpointFunctionBackward
    CheckpointFunctionBackward, seq = 9
        {RELU}
            aten::relu, seq = 1
                > 5 k
""")
    )
    (node, _, node_start, node_end, node_own, _), (op, direction, start, end, own, _) = found
    assert (node, op, direction) == ("CheckpointFunctionBackward", "relu", 0)
    assert own == end - start
    assert node_own == node_end - node_start - own


def test_two_processes_come_one_after_the_other(read: Read) -> None:
    found = read(f"""
thread 1 process 300
{RELU}
    > 5 k
thread 1 process 200
{LINEAR}
    > 5 k
thread 1 process 300
{RELU}
    > 5 k
""")
    assert found.process.tolist() == sorted(found.process.tolist())
    assert len(found) == 3


def test_every_span_belongs_to_one_execution_or_none(read: Read) -> None:
    found = read(
        "the user's own\n    "
        + "\n    ".join((FORWARD + NODES).strip().splitlines()).replace("    thread 2", "thread 2")
    )
    inside = found.of_span >= 0
    assert set(found.of_span[inside].tolist()) == set(range(len(found)))
    assert not inside.all()  # the user's range is no operator


def test_a_range_that_is_announced_like_an_operator_swallows_none(read: Read) -> None:
    """FSDP and DataParallel: a name of their own, no number. What is left of their time is theirs."""
    found = read("""
FSDP::pre_forward (encoder.0), op_id = 1
    aten::copy_, op_id = 2
        aten::empty, op_id = 3
            > 5 k
    > 7 copy
""")
    (outer, _, start, end, own, _), (inner, _, inner_start, inner_end, inner_own, _) = shown(found)
    assert (outer, inner) == ("FSDP::pre_forward (encoder.0)", "aten::copy_")
    assert inner_own == inner_end - inner_start
    assert own == end - start - inner_own
    assert found.sites[found.site[1]].ranges == ("FSDP::pre_forward (encoder.0)",)
