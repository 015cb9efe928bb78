# SPDX-License-Identifier: Apache-2.0
"""Recomputation in recordings that have no calls: of torch.profiler and of emit_nvtx."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from pyprof.core.model import PHASES, no_functions
from pyprof.parse import loader
from pyprof.parse.rows import rows
from pyprof.parse.saved_operands import SAVES_OPERANDS
from tests import build, kineto

# Name: lines of the backward, and the phase of each kernel in it. The forward ran operators 3 to 5.
CASES = {
    "a node that recomputes: numbers first, none at its end": (
        """
        seq=5 fwd=1 TanhBackward0
            seq=9 aten::linear
                seq=9 aten::addmm
                    > again
            aten::empty
                > noise
            seq=11 aten::tanh
                > tanh
            aten::tanh_backward
                > own
        """,
        {"again": "recompute", "noise": "recompute", "tanh": "recompute", "own": "backward"},
    ),
    "a range of the user between changes nothing": (
        """
        seq=5 fwd=1 TanhBackward0
            # block
                seq=9 aten::addmm
                    > again
            aten::tanh_backward
                > own
        """,
        {"again": "recompute", "own": "backward"},
    ),
    "create_graph: numbers to the end": (
        """
        seq=5 fwd=1 PowBackward0
            seq=9 aten::pow
                > pow
            aten::empty
                > empty
            seq=10 aten::mul
                > mul
        """,
        {"pow": "backward", "empty": "backward", "mul": "backward"},
    ),
    "create_graph: the last gradient is made of nothing": (
        """
        seq=5 fwd=1 CdistBackward0
            seq=9 aten::mul
                > mul
            aten::zeros
                > zeros
        """,
        {"mul": "backward", "zeros": "backward"},
    ),
    "a plain node": (
        """
        seq=5 fwd=1 MulBackward0
            aten::mul
                > mul
        """,
        {"mul": "backward"},
    ),
    "a user's function that records for itself": (
        """
        seq=4 fwd=1 SquareBackward
            seq=9 aten::mul
                > mine
            aten::mul
                > own
        """,
        {"mine": "backward", "own": "backward"},
    ),
    "a user's function that runs again": (
        """
        seq=4 fwd=1 SquareBackward
            aten::neg
                > before
            seq=9 aten::tanh
                > again
            seq=10 Square
                aten::mul
                    > square
            aten::mul
                > own
        """,
        {"before": "backward", "again": "recompute", "square": "recompute", "own": "backward"},
    ),
    "a checkpoint's own node, and the backward that it runs": (
        """
        seq=4 fwd=1 CheckpointFunctionBackward
            aten::detach
                > detach
            seq=9 aten::addmm
                > again
            autograd::engine::evaluate_function: AddmmBackward0
                seq=9 fwd=1 AddmmBackward0
                    aten::mm
                        > gradient
        """,
        {"detach": "recompute", "again": "recompute", "gradient": "backward"},
    ),
    "what stands beside a node is no recomputation": (
        """
        autograd::engine::evaluate_function: AddmmBackward0
            seq=9 aten::mul
                > hook
            seq=4 fwd=1 AddmmBackward0
                aten::mm
                    > gradient
        """,
        {"hook": "backward", "gradient": "backward"},
    ),
}
FORWARD = """
    seq=3 aten::addmm
        > first
    seq=4 Square
        > second
    seq=5 aten::tanh
        > third
"""


def phases(path: Path) -> dict[str, str]:
    made = rows(loader.load(path))
    sites = (made.sites[site] for site in made.site)
    return {made.names[name]: PHASES[site.phase] for name, site in zip(made.name, sites)}


@pytest.mark.parametrize("case", CASES)
def test_numbers_tell_what_runs_again(case: str, tmp_path: Path) -> None:
    text, expected = CASES[case]
    path = kineto.write(tmp_path / "trace.json", kineto.Nested(FORWARD + text).events)
    assert phases(path) == {"first": "forward", "second": "forward", "third": "forward"} | expected


@pytest.mark.parametrize("case", CASES)
def test_ranges_of_emit_nvtx_tell_the_same(case: str, tmp_path: Path) -> None:
    lines = []
    for line in (FORWARD + CASES[case][0]).splitlines():
        indent, words = line[: len(line) - len(line.lstrip())], line.split()
        number = next((word.removeprefix("seq=") for word in words if word.startswith("seq=")), None)
        name = " ".join(word for word in words if "=" not in word and word != "#")
        name = name.replace("> ", "> 5 ")
        lines.append(indent + name + (f", seq = {number}" if number else ""))
    path = build.write_nsys(tmp_path / "net.sqlite", build.recording("\n".join(lines)))
    found = phases(path)
    assert {name: found[name] for name in CASES[case][1]} == CASES[case][1]


def test_versions_that_print_0_for_no_number_recompute_nothing(tmp_path: Path) -> None:
    text = """
        aten::mul, seq = 3
            > 5 first
        MulBackward0, seq = 3
            aten::mul, seq = 0
                > 5 gradient
            aten::conj
                > 5 other
    """
    path = build.write_nsys(tmp_path / "net.sqlite", build.recording(text))
    assert phases(path) == {"first": "forward", "gradient": "backward", "other": "backward"}


CHECKPOINT = "torch/utils/checkpoint.py(1500): recompute_fn"


def test_python_functions_tell_before_numbers_do(tmp_path: Path) -> None:
    text = f"""
    py train.py(3): main
        py {CHECKPOINT}
            seq=5 fwd=1 MulBackward0
                aten::mul
                    > around
        seq=4 fwd=1 TanhBackward0
            py hooks.py(3): unpack
                seq=9 aten::mul
                    > hook
            aten::tanh_backward
                > tanh
        seq=3 fwd=1 SquareBackward
            py net.py(9): backward
                aten::neg
                    > own
                py {CHECKPOINT}
                    py net.py(4): forward
                        seq=9 aten::addmm
                            > again
    """
    path = kineto.write(tmp_path / "trace.json", kineto.Nested(text).events)
    backward = dict.fromkeys(("around", "hook", "tanh", "own"), "backward")
    assert phases(path) == backward | {"again": "recompute"}


def test_a_gpu_trace_with_checkpoints_tells_the_same_both_ways(data: Path) -> None:
    trace = loader.load(data / "kineto" / "mi300_resnet_act_checkpoint.json.gz")
    found = []
    for functions in (trace.functions, no_functions()):
        made = rows(replace(trace, functions=functions))
        found.append([PHASES[made.sites[site].phase] for site in made.site])
    assert found[0] == found[1]
    assert "recompute" in found[0]


@pytest.mark.long
def test_operators_that_save_operands_alone_are_torchs() -> None:
    """What the list has, and the installed torch too, saves no result in any form."""
    torchgen = pytest.importorskip("torchgen.packaged.autograd.load_derivatives")
    folder = Path(torchgen.__file__).parent.parent
    known, _ = torchgen.load_derivatives(
        str(folder / "autograd/derivatives.yaml"),
        str(folder / "ATen/native/native_functions.yaml"),
        str(folder / "ATen/native/tags.yaml"),
    )
    results, operands = set(), set()
    for one in [info for forms in known.values() for info in forms.values()]:
        name = str(one.func.func.name.name).rstrip("_")
        if one.all_saved_outputs:
            results.add(name)
        elif one.all_saved_inputs:
            operands.add(name)
    assert SAVES_OPERANDS & results == set()
    assert {"addmm", "bmm", "convolution", "gelu", "mm", "mul"} <= SAVES_OPERANDS & operands
