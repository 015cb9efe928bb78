# SPDX-License-Identifier: Apache-2.0
"""Internals of torch that capture uses: without each of them, and with each of them changed, there is a recording."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.forks import ROOT, Forks

from .conftest import Recorded

CAPTURE = ROOT / "pyprof" / "capture"
EVENT = "torch._C._autograd._KinetoEvent"
# Every name that a recording looks up: what its file must have without it. s: calls, o: operators, b: operators of a
# backward by their scope. The names of one row go together; each alone, and changed, is a long test.
NAMES: dict[tuple[str, ...], str] = {
    ("torch._C._is_tracing",): "sob",
    ("torch._C._current_graph_task_id",): "sob",
    ("torch._C._autograd._profiler_enabled",): "sob",
    ("torch._C.DisableTorchFunction", "torch._C.DisableTorchFunctionSubclass"): "sob",
    (
        "torch._C._len_torch_function_stack", "torch.nn.Module._call_impl.__code__",
        "torch._C._dynamo.eval_frame.skip_code", "torch._C._dynamo.eval_frame.set_code_exec_strategy",
        "torch._C._dynamo.eval_frame._FrameAction", "torch._C._dynamo.eval_frame._FrameExecStrategy",
    ): "sob",
    (
        "torch.utils.checkpoint.CheckpointFunction",
        "torch.utils.checkpoint._checkpoint_without_reentrant_generator",
    ): "sob",
    ("torch.utils.checkpoint._StopRecomputationError",): "sob",
    ("torch._C._nn", "torch._VF", "torch._C._VariableFunctions"): "sob",
    ("torch.utils._pytree.tree_leaves", "torch.utils._python_dispatch.TorchDispatchMode"): "sob",
    ("torch._C._are_functorch_transforms_active", "torch._C._functorch.is_batchedtensor",
     "torch._C._functorch.is_functorch_wrapped_tensor", "torch._C._functorch.get_unwrapped"): "sob",
    ("torch._ops.HigherOrderOperator", "torch.fx.experimental.proxy_tensor.get_proxy_mode"): "sob",
    ("torch.Tensor.__dlpack_c_exchange_api__",): "sob",
    ("torch._C._profiler.ProfilerActivity",): "s",
    ("torch._C._profiler._RecordFunctionFast",): "sob",
    ("torch.ops.profiler._record_function_exit._RecordFunction",): "sob",
    ("torch._C._profiler.ProfilerConfig", "torch._C._profiler.ProfilerState"): "s",
    ("torch._C._profiler._ExperimentalConfig",): "s",
    ("torch._C._autograd._prepare_profiler", "torch._C._autograd._enable_profiler"): "s",
    ("torch._C._autograd._disable_profiler",): "s",
    ("torch._C._get_schema", "torch._C._jit_get_schemas_for_operator"): "sob",
    ("torch._C._autograd._supported_activities",): "sob",
    ("torch._C._autograd._is_kineto_stopped", "torch.profiler.profiler._KinetoProfile"): "sob",
    (
        *(
            f"torch._C._profiler._cupti_monitor_{name}"
            for name in (
                "buffer_request_callback_address", "buffer_complete_callback_address", "allocated_buffers",
                "pending_buffers", "get_completed", "configure_buffers", "reset_buffers",
            )
        ),
        "torch._C._profiler._cupti_approximate_time_callback_address",
        "torch._C._profiler._get_approximate_time",
    ): "sob",
    ("torch._C._profiler._EventType.Allocation", "torch._C._profiler._EventType.TorchOp"): "sob",
    ("torch.autograd.profiler._prepare_profiler", "torch.autograd.profiler._disable_profiler"): "sob",
    (
        "torch.distributed.distributed_c10d", "torch.distributed.distributed_c10d._update_default_pg",
    ): "sob",
    (
        "torch.utils.data.dataloader._MultiProcessingDataLoaderIter", "torch.utils.data._utils.worker",
        "torch.utils.data._utils.pin_memory",
    ): "sob",
    ("torch.cuda.profiler.start", "torch.cuda.profiler.stop"): "sob",
    (f"{EVENT}.name",): "s",
    (f"{EVENT}.start_ns",): "s",
    (f"{EVENT}.device_resource_id",): "s",
    (f"{EVENT}.scope",): "so",
    (f"{EVENT}.sequence_nr", f"{EVENT}.start_thread_id", f"{EVENT}.fwd_thread_id"): "sob",
    (f"{EVENT}.dtypes", f"{EVENT}.concrete_inputs"): "sob",
    (
        f"{EVENT}.end_ns", f"{EVENT}.overload_name", f"{EVENT}.activity_type",
        f"{EVENT}.structured_input_shapes", f"{EVENT}.structured_input_strides",
    ): "sob",
}  # fmt: skip
PROGRAM = """
import threading
import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.checkpoint import checkpoint
import pyprof
from pyprof.capture import observer; from pyprof.capture.core import torch_internals

class Double(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x * 2
    @staticmethod
    def backward(ctx, grad):
        return grad * 2

torch.manual_seed(0)
model = nn.Sequential(nn.Linear(4, 3), nn.Tanh(), nn.Linear(3, 2))
optimizer = torch.optim.AdamW(model.parameters(), foreach=True)
with pyprof.profile("net.sqlite") as p:
    for _ in range(2):
        with pyprof.annotate("layer:step"):
            y = checkpoint(model, torch.ones(2, 4), use_reentrant=False)
            loss = F.mse_loss(Double.apply(y), torch.zeros(2, 2))
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        p.step()
    thread = threading.Thread(target=lambda: torch.ones(2).add(1))
    thread.start()
    thread.join()
print(loss.item().hex(), [float(q.detach().sum()).hex() for q in model.parameters()])
print(*sorted(torch_internals.names))
"""
HIDE = """
from pyprof.capture.core import torch_internals
resolve, hidden, changed = torch_internals._resolve, {hidden!r}, {changed}
class Changed:
    def __getattr__(self, name):
        raise TypeError("not what it was")
    def __call__(self, *args, **kwargs):
        raise TypeError("not what it was")
def look(path):
    if path in hidden:
        if changed:
            return Changed()
        raise AttributeError("there is no " + path)
    return resolve(path)
torch_internals._resolve = look
"""


@pytest.fixture(scope="module")
def plain(compiler_forks: Forks, tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    """What the program prints where nothing is missing."""
    folder = tmp_path_factory.mktemp("plain")
    code, program = compiler_forks.run(folder, PROGRAM)
    assert (code, program.stderr.count("\n")) == (0, 1), program.stderr
    return program.stdout.splitlines()


def test_every_name_is_in_the_table(plain: list[str]) -> None:
    of_memory = {"torch._C._profiler._EventType.Allocation"}
    looked_up = {name for name in plain[1].split() if "_cudart." not in name}  # which a CPU build has not
    assert {name for names in NAMES for name in names} == looked_up | of_memory


def check(
    names: tuple[str, ...], changed: bool, kept: str, plain: list[str], compiler_forks: Forks, folder: Path
) -> None:
    """The program is what it was, the file has what it must, and one line names what is missing."""
    code, program = compiler_forks.run(folder, PROGRAM, prelude=HIDE.format(hidden=names, changed=changed))
    assert code == 0, program.stderr
    assert program.stdout.splitlines()[0] == plain[0]
    assert "Traceback" not in program.stderr
    recorded = Recorded(folder / "net.sqlite")
    assert "torch.nn.functional.linear" in recorded.names
    lines = [call.user_lines[-1] for call in recorded.calls if call.name == "torch.nn.functional.mse_loss"]
    assert [line.rpartition("/")[2] for line in lines] == ["net.py:25"] * 2
    assert ("o" in kept) == ("aten::addmm" in {op.name for op in recorded.ops})
    assert ("b" in kept) == ("AddmmBackward0" in {op.name for op in recorded.ops if op.scope == 1})
    told = recorded.table("PYPROF_META").get("torch.missing", "")
    said = [line for line in program.stderr.splitlines() if "lacks or has changed" in line]
    assert len(said) == bool(told)
    named = said[0].partition(". Not recorded")[0].split(" changed ")[1].split(", ") if said else []
    assert all(f"{name} (" in told for name in named)
    if kept != "sob":
        assert changed or all(name in told or (name.startswith(EVENT) and EVENT in told) for name in names)
        assert "operators" in told


@pytest.mark.parametrize("names", NAMES, ids=lambda names: names[0].rpartition(".")[2])
@pytest.mark.long
def test_without_a_name_all_else_is_recorded(
    names: tuple[str, ...], plain: list[str], compiler_forks: Forks, tmp_path: Path
) -> None:
    check(names, False, NAMES[names], plain, compiler_forks, tmp_path)


@pytest.mark.long
@pytest.mark.parametrize("changed", [False, True])
@pytest.mark.parametrize(("name", "kept"), [(name, kept) for names, kept in NAMES.items() for name in names], ids=str)
def test_each_name_alone(
    name: str, kept: str, changed: bool, plain: list[str], compiler_forks: Forks, tmp_path: Path
) -> None:
    check((name,), changed, kept, plain, compiler_forks, tmp_path)


@pytest.mark.parametrize(
    ("change", "lost"),
    [
        ("del torch.cuda.nvtx.range_push", "ranges of torch.cuda.nvtx"),
        ("del torch.autograd.profiler.emit_nvtx", "emit_nvtx without CUDA"),
        ("torch.overrides.get_overridable_functions = lambda: {}", "calls of methods of tensors"),
    ],
)
def test_what_cannot_be_patched_is_left_alone(
    change: str, lost: str, plain: list[str], compiler_forks: Forks, tmp_path: Path
) -> None:
    code, program = compiler_forks.run(tmp_path, PROGRAM, prelude=f"import torch\n{change}\n")
    assert code == 0, program.stderr
    assert program.stdout.splitlines()[0] == plain[0]
    recorded = Recorded(tmp_path / "net.sqlite")
    assert "AddmmBackward0" in {op.name for op in recorded.ops}
    assert lost in recorded.table("PYPROF_META")["torch.missing"]
    (said,) = [line for line in program.stderr.splitlines() if "lacks or has changed" in line]
    assert lost in said


@pytest.mark.parametrize("version", ["2.1.2+cu118", "1.13.0"])
def test_a_torch_that_is_too_old_is_one_sentence(version: str, compiler_forks: Forks, tmp_path: Path) -> None:
    prelude = f"import torch\ntorch.__version__ = {version!r}\n"
    program = "import torch, pyprof\nwith pyprof.profile() as p:\n    torch.ones(1)\n    p.step()\nprint('done')\n"
    sentence = f"recording needs torch 2.4 or later, and this is torch {version}. "
    code, done = compiler_forks.run(tmp_path, program, prelude=prelude)
    assert (code, done.stdout) == (0, "done\n")
    assert done.stderr.startswith(f"pyprof: nothing is recorded: {sentence}")
    assert done.stderr.count("\n") == 1
    code, done = compiler_forks.run(tmp_path, program, "run", prelude=prelude)
    assert (code, done.stdout) == (1, "")  # the command records or says why not; the script does not run
    assert done.stderr.startswith(f"pyprof run: {sentence}")
    assert done.stderr.count("\n") == 1
    assert not (tmp_path / "net.sqlite").exists()


def private_names(tree: ast.AST) -> Iterator[str]:
    """Attributes of torch, and imports from it, whose name begins with an underscore."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute):
            path = ast.unparse(node)
            if path.startswith("torch.") and any(part[0] == "_" != part[1] for part in path.split(".")):
                yield path
        elif isinstance(node, ast.ImportFrom) and (node.module or "").startswith("torch"):
            yield from (
                f"{node.module}.{name.name}"
                for name in node.names
                if any(part[0] == "_" for part in f"{node.module}.{name.name}".split("."))
            )


@pytest.mark.parametrize("path", sorted(CAPTURE.rglob("*.py")), ids=lambda path: path.stem)
def test_private_names_of_torch_are_looked_up(path: Path) -> None:
    """`torch._C` alone may be asked whether it has something."""
    found = set(private_names(ast.parse(path.read_text(encoding="utf-8"))))
    assert found <= {"torch._C", "torch._subclasses.fake_tensor.FakeTensor"}
