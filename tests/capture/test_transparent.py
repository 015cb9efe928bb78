# SPDX-License-Identifier: Apache-2.0
"""Capture changes no attribute and no identity, and keeps nothing. (That it changes no result: test_features_*.py.)"""

from __future__ import annotations

import copy
import gc
import pickle
import sys
import types
import warnings
import weakref
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

import pyprof

from .conftest import Recorded

Record = Callable[..., Recorded]
OPTIMIZERS = [
    name for name, cls in vars(torch.optim).items()
    if isinstance(cls, type) and issubclass(cls, torch.optim.Optimizer) and cls is not torch.optim.Optimizer
]  # fmt: skip
OWNERS: dict[str, Any] = {
    "torch": torch,
    "F": F,
    "linalg": torch.linalg,
    "fft": torch.fft,
    "special": torch.special,
    "_VF": torch._VF,
    "_nn": torch._C._nn,
    "Tensor": torch.Tensor,
    "Module": nn.Module,
    "Function": torch.autograd.Function,
    "optim": torch.optim,
    "nn.utils": nn.utils,
    "Optimizer": torch.optim.Optimizer,
    **{name: getattr(torch.optim, name) for name in OPTIMIZERS},
    "distributed": torch.distributed,
    "c10d": torch.distributed.distributed_c10d,
    "DataLoader": DataLoader,
    "utils.data": torch.utils.data,
    "loader": torch.utils.data.dataloader,
    "jit": torch.jit,
    "functional": torch.functional,
    "C": torch._C,
    "TensorBase": torch._C.TensorBase,
    "profiler": torch.autograd.profiler,
    "record_function": torch.autograd.profiler.record_function,
    "emit_nvtx": torch.autograd.profiler.emit_nvtx,
    "cuda.profiler": torch.cuda.profiler,
    "cuda.nvtx": torch.cuda.nvtx,
    "CUDAGraph": torch.cuda.CUDAGraph,
    "profile": torch.profiler.profiler._KinetoProfile,
}


def attributes() -> dict[str, dict[str, Any]]:
    return {name: dict(vars(owner)) for name, owner in OWNERS.items()}


def encoder() -> torch.Tensor:
    layer = nn.TransformerEncoderLayer(16, 4, 32, dropout=0.0, batch_first=True, activation=F.gelu)
    net = nn.TransformerEncoder(layer, 2).eval()
    with torch.no_grad():
        return net(torch.randn(2, 5, 16))  # type: ignore[no-any-return]


def train() -> None:
    """Every optimizer, a loader, a module, what the hooks follow."""
    for name in OPTIMIZERS:
        weight = nn.Parameter(torch.ones(2, 2))
        optimizer = getattr(torch.optim, name)([weight])
        weight.grad = torch.ones(2, 2)
        if name == "SparseAdam":
            weight.grad = weight.grad.to_sparse()
        optimizer.zero_grad() if name == "LBFGS" else optimizer.step()
    for _ in DataLoader(TensorDataset(torch.ones(2, 1))):
        encoder()


def test_shutdown_leaves_every_attribute_as_it_was(record: Record, tmp_path: Path) -> None:
    train()  # torch itself patches a class at its first instance, and computes some attributes when first asked
    before, classes = attributes(), {name: type(owner) for name, owner in OWNERS.items()}
    modules = {name for name in sys.modules if name.startswith("torch")}
    order = list(vars(torch)), list(vars(F)), list(vars(torch.Tensor))
    switches = sys.gettrace(), sys.getprofile(), list(gc.callbacks), warnings.filters[:], sys.excepthook
    pyprof.init()
    pyprof.wrap(nn.utils, "clip_grad_norm_")
    with pytest.raises(ZeroDivisionError):
        record(lambda: [train(), 1 / 0])
    with pytest.raises(KeyboardInterrupt):
        record(interrupt)
    pyprof.start(str(tmp_path / "open.sqlite"))
    pyprof.shutdown()  # in an open window
    after = attributes()
    changed = [(owner, name) for owner in OWNERS for name in before[owner] | after[owner]
               if before[owner].get(name) is not after[owner].get(name)]  # fmt: skip
    assert changed == []
    assert {name: type(owner) for name, owner in OWNERS.items()} == classes
    assert {name for name in sys.modules if name.startswith("torch")} == modules
    assert (list(vars(torch)), list(vars(F)), list(vars(torch.Tensor))) == order
    assert (
        sys.gettrace(),
        sys.getprofile(),
        list(gc.callbacks),
        warnings.filters[:],
        sys.excepthook,
    ) == switches


def interrupt() -> None:
    raise KeyboardInterrupt


FUNCTIONS = [
    "scaled_dot_product_attention", "relu", "gelu", "conv1d", "conv2d", "conv3d", "conv_transpose1d",
    "conv_transpose2d", "conv_transpose3d", "linear", "softmax", "cross_entropy", "max_pool2d",
]  # fmt: skip


@pytest.mark.parametrize("name", FUNCTIONS)
def test_functions_keep_their_identity_at_all_times(name: str, tmp_path: Path) -> None:
    before = getattr(F, name)
    values = [vars(F)[name]]
    pyprof.init()
    values.append(getattr(F, name))
    with pyprof.profile(str(tmp_path / "net.sqlite")):
        values += [getattr(F, name), vars(F)[name], {before: before}[getattr(F, name)]]
        relu, gelu = F.relu, F.gelu
        assert relu is F.relu
        assert F.gelu is gelu
        assert {F.gelu: 1}[gelu] == 1
        assert (F.relu, F.gelu)[0] is relu
        assert torch.Tensor.mul is torch._C.TensorBase.mul  # type: ignore[comparison-overlap]
        assert isinstance(torch.add, types.BuiltinFunctionType)
        assert pickle.loads(pickle.dumps(F.gelu)) is gelu
        assert copy.deepcopy(nn.TransformerEncoderLayer(8, 2, 8)).activation is F.relu
    pyprof.shutdown()
    assert all(value is before for value in [*values, getattr(F, name)])


def test_encoder_built_after_init_takes_the_fast_path(record: Record) -> None:
    pyprof.init()
    ops = record(encoder).ops
    assert [op.name for op in ops].count("aten::_transformer_encoder_layer_fwd") == 2


def test_a_function_that_is_replaced_in_a_window_is_the_new_one(record: Record) -> None:
    original = F.relu
    try:

        def body() -> None:
            F.relu = lambda x: x - 1  # type: ignore[assignment]
            assert F.relu(torch.zeros(1)).item() == -1

        record(body)
        assert F.relu(torch.zeros(1)).item() == -1
    finally:
        F.relu = original


def test_no_tensor_is_kept(tmp_path: Path) -> None:
    class Held(nn.Linear):
        pass

    def work() -> list[weakref.ref[Any]]:
        net, x = Held(3, 3), torch.ones(2, 3)
        y = F.relu(net(torch.add(x, 1)))
        with pytest.raises(RuntimeError, match="cannot be multiplied"):
            net(torch.ones(2, 7))
        return [weakref.ref(thing) for thing in (net, net.weight, x, y)]

    with pyprof.profile(str(tmp_path / "net.sqlite")):
        held = work()
        gc.collect()  # pytest.raises leaves a cycle of frames
        assert [ref() for ref in held] == [None] * 4
    pyprof.shutdown()


def test_an_error_of_an_operator_is_the_users_and_recording_goes_on(record: Record) -> None:
    def body() -> None:
        with pytest.raises(RuntimeError, match="must match"):
            torch.add(torch.ones(2), torch.ones(3))
        with pytest.raises(RuntimeError, match="cannot be multiplied"):
            nn.Linear(2, 2)(torch.ones(1, 3))
        torch.sub(torch.ones(2), 1)

    recorded = record(body)
    assert {"torch.add", "torch.nn.functional.linear", "torch.sub"} <= set(recorded.names)
    assert recorded.call("torch.sub").marker.module is None
