# SPDX-License-Identifier: Apache-2.0
"""The forward of a backward: the operator that created its node, or none where that operator is not recorded."""

from __future__ import annotations

import json
import tarfile
from pathlib import Path

import pytest

from pyprof.parse import loader
from pyprof.parse.backward_links import node_name, operator_name, pair
from pyprof.parse.join import nest_spans
from pyprof.profiles import load
from tests.kineto import op, write

CPP = "torch::autograd::CppNode<SqFunction>"


def forwards(path: Path) -> dict[str, str | None]:
    """The name of the operator that each node is paired with."""
    trace = loader.load(path)
    spans = nest_spans(trace)
    found = pair(trace, spans)
    names = [spans.labels[label].name if label >= 0 else "" for label in spans.label_of_path[spans.path]]
    numbered = [i for i, name in enumerate(names) if "evaluate_function" in name]
    return {
        names[i].rpartition(": ")[2]: names[found[i]] if found[i] >= 0 else None for i in numbered
    }  # fmt: skip


@pytest.mark.parametrize(
    ("node", "operators", "forward"),
    [
        # C++ functions: torch announces the operator that calls them, if it is one with a kernel for autograd.
        (CPP, ["sqlib::sq"], "sqlib::sq"),
        (CPP, ["aten::to", "sqlib::sq"], "sqlib::sq"),
        (CPP, ["sqlib::sq/aten::contiguous"], "sqlib::sq"),
        (CPP, ["aten::to"], None),
        (CPP, ["aten::zero_"], None),
        ("torch::autograd::CopySlices", ["aten::select"], None),
        # Functions of Python: torch announces them by their class.
        ("SqBackward", ["aten::to", "Sq"], "Sq"),
        ("SqBackward", ["aten::to"], None),
        ("SqForwardBackward", ["SqForward"], "SqForward"),
        ("GeneratedBackwardFor_lib_op_defaultBackward", ["lib::op/GeneratedBackwardFor_lib_op_default"],
         "GeneratedBackwardFor_lib_op_default"),
        # Nodes that torch generates are named after their operator.
        ("ToCopyBackward0", ["aten::to/aten::_to_copy"], "aten::_to_copy"),
        ("AddBackward0", ["aten::add_"], "aten::add_"),
        ("NllLossBackward0", ["aten::nll_loss/aten::nll_loss_forward"], "aten::nll_loss_forward"),
        ("ConvolutionBackwardBackward0", ["aten::convolution_backward"], "aten::convolution_backward"),
        ("MulBackward0", ["aten::zero_"], None),
        ("torch::jit::(anonymous namespace)::DifferentiableGraphBackward", ["aten::to"], None),
    ],
)  # fmt: skip
def test_a_node_is_paired_with_an_operator_that_can_have_created_it(node, operators, forward, tmp_path):
    """All operators are announced with the node's number; "a/b" is b inside a."""
    events = []
    for place, chain in enumerate(operators):
        for depth, name in enumerate(chain.split("/")):
            events.append(op(name, place * 1000 + depth * 10, place * 1000 + 900 - depth * 10, seq=7))
    engine = f"autograd::engine::evaluate_function: {node}"
    events += [op(engine, 9000, 9900, 7, 1, tid=102), op(node, 9100, 9800, 7, 1, tid=102)]
    assert forwards(write(tmp_path / "t.json", events)) == {node: forward}


def test_an_operator_around_with_another_number_created_another_node(tmp_path):
    """The clone took number 7 inside sqlib::sq, announced with 7; the node of sqlib::sq is 8, announced to none."""
    engine = f"autograd::engine::evaluate_function: {CPP}"
    events = [
        op("sqlib::sq", 0, 900, seq=7), op("aten::clone", 10, 100, seq=7),
        op("aten::to", 120, 200, seq=8),
        op(engine, 9000, 9900, 8, 1, tid=102), op(CPP, 9100, 9800, 8, 1, tid=102),
    ]  # fmt: skip
    assert forwards(write(tmp_path / "t.json", events)) == {CPP: None}


def test_backwards_of_dlrm_have_the_operators_of_its_raw_files(data, tmp_path):
    """FBGEMM's lookups create nodes without being announced: the last operators with their numbers are helpers."""
    with tarfile.open(data / "kineto/dlrm_v100_8ranks.tar.gz") as archive:
        archive.extractall(tmp_path, filter="data")
    path = min(tmp_path.rglob("*.json"))
    raw = [one for one in json.loads(path.read_text())["traceEvents"] if one.get("cat") == "cpu_op"]
    numbered = [(one["ts"], one["args"]["Sequence number"], one["name"], one["args"]["Fwd thread id"])
                for one in raw if "Sequence number" in one["args"]]  # fmt: skip
    expected = {}
    for time, number, name, thread in numbered:
        if thread and name.startswith("autograd::engine"):
            last = max(one for one in numbered if one[1] == number and not one[3] and one[0] < time)
            expected[name.rpartition(": ")[2]] = None if "CppNode" in name else last[2]
    nodes = {name for name in expected if "CppNode" in name}
    assert nodes == {f"torch::autograd::CppNode<SplitLookupFunction_{kind}_Op>" for kind in ("adagrad", "Dense")}
    found = forwards(path)
    assert {name: found[name] for name in expected} == expected

    ops = load(path).ops
    backward = ops[ops["direction"] == "bprop"]
    ours = backward[backward["name"].str.startswith("cppnode")]
    assert sorted(ours["name"]) == sorted(node.rpartition("::")[2].lower() for node in nodes)
    assert ours["forward"].isna().all()
    assert not {"bounds_check_indices", "to"} & set(backward["type"])


@pytest.mark.long
def test_names_of_nodes_that_torch_generates_are_those_of_their_operators():
    derivatives = pytest.importorskip("torchgen.packaged.autograd.load_derivatives")
    folder = Path(derivatives.__file__).parent.parent
    known, _ = derivatives.load_derivatives(
        str(folder / "autograd/derivatives.yaml"),
        str(folder / "ATen/native/native_functions.yaml"),
        str(folder / "ATen/native/tags.yaml"),
    )
    of = {
        (info.op, str(info.func.func.name.name))
        for forms in known.values() for info in forms.values() if info.op
    }  # fmt: skip
    assert len(of) > 500
    assert {one for one in of if node_name(one[0]) != operator_name(one[1])} == set()
