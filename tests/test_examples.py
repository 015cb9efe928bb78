# SPDX-License-Identifier: Apache-2.0
"""The examples run alone and under `pyprof run`, and their tables say what their docstrings promise.

FLOPs are derived here by hand from the shapes in the scripts (a fused multiply-add is 2), never from our own output.
"""

from __future__ import annotations

import csv
import io
import os
import subprocess
import sys
from collections import Counter
from contextlib import redirect_stdout
from pathlib import Path

import pytest

import pyprof
from pyprof.parse import loader
from tests import cli
from tests.forks import Forks
from tests.waiting import HANG

ROOT = Path(__file__).resolve().parent.parent
EXAMPLES = sorted(path.name for path in (ROOT / "examples").glob("*.py"))
PAIR = ["fast.py", "slow.py"]  # whole training runs, without a line of PyProf
OF_ONE = [name for name in EXAMPLES if name not in ("ddp.py", *PAIR)]  # those of one process and one recording
FIRST = "simple.py"
TRAINED = {"lenet.py", "transformer.py", "resnet50.py"}  # those with an optimizer
COLUMNS = ("idx", "dir", "phase", "mod", "op", "module", "trace", "layer", "params", "sil", "flops", "bytes")


def python(*args: str | Path, cwd: Path, **variables: str) -> subprocess.CompletedProcess[str]:
    env = os.environ | {
        "PYTHONPATH": str(ROOT),
        "CUDA_VISIBLE_DEVICES": "",
    }  # figures below are those of a CPU
    env |= variables
    return subprocess.run(
        [sys.executable, *map(str, args)],
        cwd=cwd,
        env=env,
        capture_output=True,
        text=True,
        timeout=HANG,
        check=False,
    )


def line_of(name: str, text: str) -> str:
    """FILE:LINE of the one line of an example that contains a text."""
    lines = (ROOT / "examples" / name).read_text(encoding="utf-8").splitlines()
    (number,) = [number for number, line in enumerate(lines, 1) if text in line]
    return f"{name}:{number}"


def rows_of(path: Path, folder: Path, scripts: bool) -> list[dict[str, str]]:
    """What parse and prof say of a recording; as scripts, in processes of their own, or in this one."""
    options = ["--csv", "-c", ",".join(COLUMNS), "net.dict"]
    if scripts:
        done = python(ROOT / "pyprof/parse/parse.py", path, "-o", "net.dict", cwd=folder)
        assert done.returncode == 0, done.stderr
        done = python(ROOT / "pyprof/prof/prof.py", *options, cwd=folder)
        assert done.returncode == 0, done.stderr
        text = done.stdout
    else:
        assert cli.parse([str(path), "-f", "-o", str(folder / "net.dict")]) == 0
        with redirect_stdout(io.StringIO()) as said:
            assert cli.prof([*options[:-1], str(folder / "net.dict")]) == 0
        text = said.getvalue()
    _, *lines = csv.reader(text.splitlines())
    return [dict(zip(COLUMNS, line, strict=True)) for line in lines]


@pytest.fixture(scope="session")
def forks(compiler_forks: Forks) -> Forks:
    """Most of the examples have an optimizer."""
    return compiler_forks


@pytest.fixture(scope="module")
def table(tmp_path_factory, forks):
    """Record an example and return the rows of prof as dictionaries; each once. The first as a user does, with three
    commands; the others in forks of a process that has torch."""
    done: dict[str, list[dict[str, str]]] = {}

    def rows(name: str) -> list[dict[str, str]]:
        if name not in done:
            folder = tmp_path_factory.mktemp("example")
            script, words = ROOT / "examples" / name, ("run", "-o", "net.sqlite")
            if name == FIRST:
                run = python("-m", "pyprof", *words, script, cwd=folder)
                assert run.returncode == 0, run.stderr
            else:
                code, program = forks.run(folder, script, *words, CUDA_VISIBLE_DEVICES="")
                assert code == 0, program.stderr
            done[name] = rows_of(folder / "net.sqlite", folder, scripts=name == FIRST)
        return done[name]

    return rows


def flops(rows: list[dict[str, str]], **where: str) -> list[int]:
    """FLOPs of the rows that agree with `where`, without the helpers that carry none."""
    found = [int(row["flops"]) for row in rows if all(row[column] == value for column, value in where.items())]
    return [count for count in found if count]


@pytest.mark.long
@pytest.mark.parametrize("name", EXAMPLES)
def test_runs_alone(name, tmp_path, forks):
    code, run = forks.run(tmp_path, ROOT / "examples" / name, CUDA_VISIBLE_DEVICES="")
    assert code == 0, run.stderr
    assert run.stdout.startswith(f"{name if name in PAIR else name.removesuffix('.py')} on cpu: ")
    if name in ("ddp.py", *PAIR):  # init() is called by the ranks, which say nothing, or not at all
        assert run.stderr == ""
        return
    (line,) = run.stderr.splitlines()
    if "profiler.start()" in (ROOT / "examples" / name).read_text(encoding="utf-8"):  # a window of its own
        assert line.startswith("net.sqlite: ")
        assert os.listdir(tmp_path) == ["net.sqlite"]
    else:
        assert line.startswith("pyprof: nothing was recorded.")
        assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    "name", [name if name == "lenet.py" else pytest.param(name, marks=pytest.mark.long) for name in OF_ONE]
)
def test_table_has_every_direction(name, table):
    rows = table(name)
    phases = Counter((row["dir"], row["phase"]) for row in rows)
    assert phases["fprop", "forward"] > 0
    assert phases["bprop", "backward"] > 0
    assert (phases["fprop", "optimizer"] > 0) == (name in TRAINED)
    for row in rows:
        assert row["dir"] in ("fprop", "bprop", "na")
        assert int(row["sil"]) >= 0
    for row in rows:
        if row["op"] in ("linear", "conv2d"):
            assert name in row["trace"]


def test_simple_is_one_product_forward_and_two_backward(table):
    rows = table("simple.py")
    product = 2 * 64 * 1024 * 512
    assert flops(rows, op="linear", dir="fprop") == [product]
    assert [count for count in flops(rows, op="linear", dir="bprop") if count >= product] == [
        product,
        product,
    ]
    lines = {row["trace"].split(",")[-1].rsplit("/", 1)[-1] for row in rows if row["op"] == "linear"}
    assert lines == {line_of("simple.py", "F.linear(")}


BATCH = 32
LENET = [  # module, forward FLOPs, FLOPs of each row of the backward in units of the forward, additions for the bias
    (
        "conv1",
        2 * BATCH * 6 * 28 * 28 * 1 * 5 * 5,
        [1],
        [],
    ),  # the images need no gradient: that of the weight alone
    ("conv2", 2 * BATCH * 16 * 10 * 10 * 6 * 5 * 5, [2], []),  # one operator computes both gradients on a CPU
    ("fc1", 2 * BATCH * 400 * 120, [1, 1], [BATCH * 120]),
    ("fc2", 2 * BATCH * 120 * 84, [1, 1], [BATCH * 84]),
    ("fc3", 2 * BATCH * 84 * 10, [1, 1], [BATCH * 10]),
]


@pytest.mark.parametrize(("module", "forward", "products", "bias"), LENET, ids=[case[0] for case in LENET])
def test_lenet_flops_by_hand(module, forward, products, bias, table):
    op = "conv2d" if module.startswith("conv") else "linear"
    rows = table("lenet.py")
    assert flops(rows, module=module, op=op, dir="fprop") == [forward]
    backward = [forward * n for n in products] + bias
    assert flops(rows, module=module, op=op, dir="bprop") == backward
    lines = {
        row["trace"].split(",")[-1].rsplit("/", 1)[-1] for row in rows if (row["module"], row["op"]) == (module, op)
    }
    assert lines == {line_of("lenet.py", f"self.{module}(")}


def test_transformer_names_the_layers(table):
    rows = table("transformer.py")
    attention = [row for row in rows if row["op"] == "scaled_dot_product_attention"]
    for direction in ("fprop", "bprop"):
        modules = {row["module"] for row in attention if row["dir"] == direction}
        assert modules == {"encoder.layers.0.self_attn", "encoder.layers.1.self_attn"}
    vocabulary = 2 * (8 * 64) * 128 * 1000
    assert flops(rows, module="head", op="linear", dir="fprop") == [vocabulary]
    assert flops(rows, module="head", op="linear", dir="bprop")[:2] == [vocabulary, vocabulary]


@pytest.mark.long
def test_resnet50_forward_agrees_with_torch(table):
    """The figure is what torch.utils.flop_counter says of this network and 4 images of 64x64."""
    rows = table("resnet50.py")
    counted = 2_685_534_208
    assert sum(flops(rows, op="conv2d", dir="fprop") + flops(rows, op="linear", dir="fprop")) == counted
    assert len(flops(rows, op="conv2d", dir="fprop")) == 53


def test_user_names_nest_and_follow_the_backward(table):
    rows = table("user_annotation.py")
    names = {f"block{n}:{part}" for n in (0, 1) for part in ("attention", "feed_forward")}
    for direction in ("fprop", "bprop"):
        assert names <= {row["layer"] for row in rows if row["dir"] == direction}
        assert {row["op"] for row in rows if row["layer"] == "loss" and row["dir"] == direction} == {
            "square",
            "mean",
        }


def test_wrapped_function_is_one_operator(table):
    rows = table("custom_function.py")
    for direction in ("fprop", "bprop"):
        wrapped = [row for row in rows if row["op"] == "fused_gelu" and row["dir"] == direction]
        assert wrapped
        for row in wrapped:
            assert line_of("custom_function.py", "y = fused_gelu(") in row["trace"]
    square = line_of("custom_function.py", "Square.apply(")
    assert {row["dir"] for row in rows if square in row["trace"]} == {"fprop", "bprop"}


def test_compiled_modules_name_the_line_that_called_them(table):
    rows = table("jit.py")
    product = 2 * 32 * 128 * 128
    assert flops(rows, op="linear", dir="fprop").count(product) == 4
    lines = {row["trace"].split(",")[-1].rsplit("/", 1)[-1] for row in rows if row["op"] == "linear"}
    assert lines == {line_of("jit.py", "y = scripted(x)"), line_of("jit.py", "z = traced(y)")}


@pytest.mark.long
def test_the_slow_training_is_slow_for_the_reasons_that_the_fast_one_lacks(tmp_path, forks):
    """Both end with the same loss and as many right answers. In each step of the slow one 64 pictures are shrunk while
    the loop loads its batch, which the finding leads to, 64 answers are compared, and the cell runs once for each of
    28 rows."""
    steps, losses, calls, findings = 6, {}, {}, {}
    for name in PAIR:
        script = ROOT / "examples" / name
        code, program = forks.run(tmp_path, script, "run", "-o", f"{name}.sqlite", arguments=[str(steps)])
        assert code == 0, program.stderr
        losses[name] = program.stdout.split("loss ")[1].split(",")[:2]
        profile = pyprof.load(tmp_path / f"{name}.sqlite")
        forward = profile.ops[profile.ops.direction == "fprop"]
        calls[name] = Counter(path.split("/")[-1] for path in forward.name)
        findings[name] = profile.findings.set_index("rule")
    assert losses["slow.py"] == losses["fast.py"]
    assert calls["slow.py"]["interpolate"] == calls["slow.py"]["argmax"] == 64 * steps
    assert calls["slow.py"]["lstm_cell"] == 28 * steps
    assert [calls["fast.py"][name] for name in ("interpolate", "argmax", "lstm")] == [1, steps, steps]
    if len(os.sched_getaffinity(0)) > 1:  # with one processor a worker would gain nothing
        first, last = (int(line_of("slow.py", text).split(":")[1]) for text in ("picture = ", "return small["))
        waits = findings["slow.py"].loc["R09", "evidence"]
        lines = {wait["source"].rsplit("/", 1)[-1] for wait in waits if wait["source"]}
        assert lines <= {f"slow.py:{line}" for line in range(first, last + 1)}


def run_ddp(way: str, folder: Path, forks: Forks) -> None:
    """Both ranks of examples/ddp.py: started by itself under `pyprof run`, or by torchrun with a variable."""
    script, words = ROOT / "examples" / "ddp.py", ("run", "-o", "net.sqlite")
    if way == "itself":
        code, program = forks.run(folder, script, *words, CUDA_VISIBLE_DEVICES="", PYTHONPATH=str(ROOT))
        assert code == 0, program.stderr
        said = program.stdout
    else:
        launcher = ("-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2")
        run = python(*launcher, script, cwd=folder, PYPROF_OUTPUT="net.sqlite")
        assert run.returncode == 0, run.stderr
        said = run.stdout
    assert said.startswith("ddp on cpu: loss ")


@pytest.mark.parametrize("way", ["itself", "torchrun, variable"])
@pytest.mark.long
def test_ddp_has_a_whole_recording_of_each_rank(way, tmp_path, forks):
    run_ddp(way, tmp_path, forks)
    assert {path.name for path in tmp_path.iterdir()} == {"net.rank0.sqlite", "net.rank1.sqlite"}
    for rank in range(2):
        path = tmp_path / f"net.rank{rank}.sqlite"
        trace = loader.load(path)
        facts = {name: value for name, value in trace.meta.items() if name.startswith("distributed.")}
        assert facts == {
            "distributed.rank": str(rank), "distributed.world_size": "2", "distributed.backend": "gloo",
            "distributed.local_rank": str(rank),
        }  # fmt: skip
        assert trace.lost == {}
        assert list(trace.steps.number) == [0, 1, 2]
        operators = Counter(trace.strings[code] for code in trace.ops.name.tolist())
        assert operators["c10d::allreduce_"] == 3 + 1  # one bucket of gradients per step, and the loss
        rows = rows_of(path, tmp_path, scripts=False)
        product = 2 * 32 * 128 * 128
        assert flops(rows, module="module.0", op="linear", dir="fprop") == [product] * 3
        assert {row["phase"] for row in rows if row["op"] == "linear"} == {"forward", "backward"}
        assert sum(row["phase"] == "optimizer" for row in rows) > 0
