# SPDX-License-Identifier: Apache-2.0
"""Scripts that run recorded operators again: they call the same operator with the same shapes, types and strides, and
nothing that a stranger's file says is run."""

from __future__ import annotations

import ast
import json
from pathlib import Path
from typing import Any

import pytest

import pyprof
from pyprof.core.errors import UsageError
from pyprof.core.model import Arg, Call, Other, Tensor
from pyprof.facts.replayable import calls
from pyprof.prof.replay import script
from tests import kineto
from tests.cli import start
from tests.forks import Forks

RECORDED = """
import sys

import torch
import torch.nn.functional as F


def run():
    x, y, w = torch.randn(8, 16), torch.randn(8, 16), torch.randn(16, 32)
    image, kernel = torch.randn(2, 3, 12, 12), torch.randn(4, 3, 3, 3)
    table, index = torch.randn(50, 16), torch.randint(0, 50, (4, 7))
    torch.mm(x, w)
    torch.addmm(torch.randn(32), x, w)
    torch.bmm(torch.randn(3, 4, 5), torch.randn(3, 5, 6))
    torch.mm(x, w.t().contiguous().t())
    torch.add(x, y, alpha=2)
    x * y
    x.mul_(1.5)
    torch.sub(x, 3)
    x / (y.abs() + 1)
    torch.relu(x)
    F.gelu(x, approximate="tanh")
    torch.sigmoid(x)
    torch.exp(x)
    torch.log(x.abs() + 1)
    torch.softmax(x, 1)
    F.layer_norm(x, (16,), torch.ones(16), torch.zeros(16))
    F.batch_norm(image, torch.zeros(3), torch.ones(3), training=True)
    F.conv2d(image, kernel, torch.zeros(4), stride=2, padding=1)
    F.max_pool2d(image, 2)
    F.avg_pool2d(image, 2)
    F.embedding(index, table)
    torch.index_select(table, 0, index[0])
    torch.gather(x, 1, torch.randint(0, 16, (8, 3)))
    torch.zeros(8, 16).scatter_add_(1, torch.randint(0, 16, (8, 3)), torch.ones(8, 3))
    F.nll_loss(torch.log_softmax(x, 1), torch.randint(0, 16, (8,)))
    torch.sum(x, 1)
    torch.mean(x)
    torch.amax(x, 0)
    torch.cumsum(x, 1)
    torch.argmax(x, 1)
    torch.topk(x, 3)
    torch.sort(x, 1)
    torch.linalg.cholesky(torch.eye(6) * 3)
    torch.clamp(x, -1, 1)
    torch.where(x > 0, x, y)
    F.interpolate(image, scale_factor=2.0, mode="nearest")
    F.scaled_dot_product_attention(*(torch.randn(2, 4, 8, 16) for _ in range(3)))
    x.to(torch.bfloat16)
    torch.tril(x)


run()
with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU], record_shapes=True) as profiler:
    run()
profiler.export_chrome_trace(sys.argv[1])
"""
# Runs the scripts of a JSON list, each once, and writes which operators ran with which inputs.
REPLAYED = """
import json, sys
import torch

scripts = json.load(open(sys.argv[1]))
out = []
for text in scripts:
    names = {"__name__": "replayed"}
    exec(compile(text, "script", "exec"), names)
    try:
        run = names["prepare"]()
        with torch.no_grad(), torch.profiler.profile(
            activities=[torch.profiler.ProfilerActivity.CPU], record_shapes=True
        ) as profiler:
            run()
    except Exception as error:
        out.append(repr(error))
    else:
        out.append([(event.name, event.input_shapes) for event in profiler.events()])
json.dump(out, open(sys.argv[2], "w"))
"""


@pytest.fixture(scope="module")
def forks(tmp_path_factory: pytest.TempPathFactory) -> Any:
    server = Forks(tmp_path_factory.mktemp("logs"), "import torch.profiler, torch.utils.benchmark")
    yield server
    server.close()


@pytest.fixture(scope="module")
def recorded(forks: Forks, tmp_path_factory: pytest.TempPathFactory) -> pyprof.Profile:
    folder = tmp_path_factory.mktemp("recorded")
    code, program = forks.run(folder, RECORDED, arguments=[str(folder / "trace.json")])
    assert code == 0, program.stderr
    return pyprof.load(folder / "trace.json")


def shapes(call: Call) -> list[Any]:
    """As torch.profiler shows inputs; a list of tensors has no shape."""
    return [list(arg.value.shape) if isinstance(arg.value, Tensor) else [] for arg in call.args]


def test_operators_of_a_recording_run_again_with_their_shapes(recorded, forks, tmp_path):
    scripts: list[str] = []
    wanted: list[Call] = []
    refused: list[str] = []
    for one in calls(recorded.source()):
        try:
            scripts.append(script(one.call, "a test"))
        except UsageError as error:
            refused.append(str(error).partition(" ")[0])
        else:
            wanted.append(one.call)
    assert refused == ["aten::_linalg_check_errors"]
    (tmp_path / "in.json").write_text(json.dumps(scripts))
    code, program = forks.run(tmp_path, REPLAYED, arguments=[str(tmp_path / "in.json"), str(tmp_path / "out.json")])
    assert code == 0, program.stderr
    assert len({call.op for call in wanted}) > 60
    for call, ran in zip(wanted, json.loads((tmp_path / "out.json").read_text()), strict=True):
        assert not isinstance(ran, str), (call.op, ran)
        assert [call.op, shapes(call)] in ran, call.op


def test_a_script_stands_alone_and_measures(forks, tmp_path):
    (tmp_path / "mm.py").write_text(script(Call("aten", "aten::mm", (ARRAY, Arg("", Tensor((4, 3), None)))), "a test"))
    code, program = forks.run(tmp_path, Path("mm.py"))
    assert code == 0, program.stderr
    assert program.stdout.startswith("aten::mm: median ")


ARRAY = Arg("", Tensor((8, 4), "float32"))


def body(call: Call) -> str:
    """The arguments of a script."""
    text = script(call, "a test")
    tree = ast.parse(text)
    return ast.unparse(
        next(n for n in tree.body if isinstance(n, ast.Assign) and ast.unparse(n.targets[0]) == "ARGUMENTS")
    )


@pytest.mark.parametrize(
    ("call", "part"),
    [
        (
            ("aten::embedding", (50, 16), "float32", (4, 7), "int64"),
            "TensorSpec((4, 7), 'int64', None, 'index', 50)",
        ),
        (
            ("aten::index_select", (50, 16), "float32", 1, (9,), "int64"),
            "TensorSpec((9,), 'int64', None, 'index', 16)",
        ),
        (
            ("aten::nll_loss_forward", (8, 5), "float32", (8,), "int64"),
            "TensorSpec((8,), 'int64', None, 'index', 5)",
        ),
        (
            ("aten::take_along_dim", (50, 16), "float32", (4, 7), "int64"),
            "TensorSpec((4, 7), 'int64', None, 'index', 16)",
        ),
        (
            ("aten::linalg_cholesky_ex", (6, 6), "float64"),
            "TensorSpec((6, 6), 'float64', None, 'definite', 2)",
        ),
        (("aten::log", (6,), "bfloat16"), "TensorSpec((6,), 'bfloat16', None, 'positive', 2)"),
    ],
)
def test_values_fit_the_operator(call, part):
    name, *rest = call
    args, i = [], 0
    while i < len(rest):
        if isinstance(rest[i], tuple):
            args.append(Arg("", Tensor(rest[i], rest[i + 1])))
            i += 1
        else:
            args.append(Arg("", rest[i]))
        i += 1
    assert part in body(Call("aten", name, tuple(args)))


@pytest.mark.parametrize(
    ("mod", "op"),
    [
        ("torch", "load"), ("torch.os", "system"), ("aten", "aten::from_file"), ("builtins", "eval"),
        ("aten", "aten::mm.x()"), ("aten", "aten::mm; import os"), ("mine", "mine::mm"),
        ("torch.nn.functional", "linear.__globals__"),
        ("Tensor", "__class__"), ("torch.os", "mm"),
    ],
)  # fmt: skip
def test_only_operators_with_a_formula_are_called(mod, op):
    with pytest.raises(UsageError, match="cannot be replayed"):
        script(Call(mod, op, (ARRAY, ARRAY)), "a test")


def test_texts_of_a_stranger_stay_literals_and_comments():
    hostile = 'x"\'] + [__import__("os").system("id")]\n@TITLE@ \u2028'
    text = script(Call("aten", "aten::mm", (ARRAY, Arg("", (hostile, float("nan"))))), f"a {hostile} file @ARGUMENTS@")
    assert text.isascii()
    called = {ast.unparse(n.func) for n in ast.walk(ast.parse(text)) if isinstance(n, ast.Call)}
    assert not any("__import__" in name or "system" in name for name in called)
    tree = ast.parse(text)
    made = next(n for n in tree.body if isinstance(n, ast.Assign) and ast.unparse(n.targets[0]) == "ARGUMENTS")
    assert isinstance(made.value, ast.List)
    assert ast.literal_eval(made.value.elts[1].elts[0]) == hostile  # type: ignore[attr-defined]


@pytest.mark.parametrize("tensor", [Tensor((-1,), "float32"), Tensor((2,), "float32", (-1,)), Tensor((2,), "no type")])
def test_a_tensor_that_is_none_is_refused(tensor):
    with pytest.raises(UsageError):
        script(Call("aten", "aten::relu", (Arg("", tensor),)), "a test")


def test_what_is_not_recorded_is_the_default():
    assert "DEFAULT" in body(Call("aten", "aten::relu", (ARRAY, Arg("", Other("int")))))


def test_the_command_lists_and_prints(tmp_path, capsys):
    dims = {"Input Dims": [[8, 4], [4, 5]], "Input type": ["float", "float"]}
    small = {"Input Dims": [[2, 4], [4, 5]], "Input type": ["float", "float"]}
    events = [
        kineto.op("aten::mm", 0, 100, **small),
        kineto.op("aten::mm", 200, 500, **dims),
        kineto.op("aten::f", 600, 900),
    ]
    path = str(kineto.write(tmp_path / "a.json", events))
    assert start("replay", [path]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[:4] for line in lines[1:]] == [
        ["0", "aten::mm", "1", "300"],
        ["1", "aten::mm", "1", "100"],
    ]
    assert start("replay", [path, "--row", "1"]) == 0
    assert 'TensorSpec((2, 4), "float32", None, "normal", 4)' in capsys.readouterr().out
    assert start("replay", [path, "--row", "2"]) == 2
    assert capsys.readouterr().err == "pyprof replay: --row 2 does not exist; there are 0 to 1.\n"
    assert start("replay", [path, "--name", "aten::f"]) == 2
    assert "no operator 'aten::f' with recorded arguments" in capsys.readouterr().err
