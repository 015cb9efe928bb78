# SPDX-License-Identifier: Apache-2.0
"""The target table: what a user calls is seen, what only asks is not, and each omission has its reason."""

from __future__ import annotations

import re
import types
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

from pyprof.capture.instrument import targets

from .conftest import Recorded

SEEN = {namespace.module.__name__: dict(targets.functions(namespace)) for namespace in targets.namespaces()}
METHODS = set(targets.tensor_methods())


@pytest.mark.parametrize(
    ("module", "names"),
    [
        (
            "torch.nn.functional",
            "linear conv1d conv2d conv3d conv_transpose2d relu relu_ gelu silu hardswish softmax log_softmax "
            "scaled_dot_product_attention cross_entropy mse_loss layer_norm rms_norm batch_norm group_norm dropout "
            "embedding max_pool2d adaptive_avg_pool2d interpolate pad one_hot grid_sample ctc_loss",
        ),
        (
            "torch",
            "add mm bmm addmm matmul einsum cat stack where zeros randn arange tensor eye relu_ conv2d tanh sort topk "
            "_foreach_add_ _foreach_norm _fused_adamw_ _fused_sgd_ _scaled_mm _int_mm _grouped_mm lstm clone",
        ),
        ("torch._VF", "lstm gru rnn_tanh rnn_relu lstm_cell gru_cell"),
        ("torch.linalg", "inv solve svd norm matrix_norm cholesky"),
        ("torch.fft", "fft rfft irfft2"),
        ("torch.special", "expit erf"),
    ],
)
def test_functions_that_compute_are_seen(module: str, names: str) -> None:
    assert set(names.split()) - set(SEEN[module]) == set()


def test_tensor_methods_that_compute_are_seen() -> None:
    names = (
        "add add_ mul matmul sum mean view reshape permute transpose contiguous to half cpu float clone copy_ "
        "__add__ __radd__ __iadd__ __sub__ __rsub__ __mul__ __matmul__ __truediv__ __rtruediv__ __pow__ __rpow__ "
        "__getitem__ __setitem__ __neg__ __eq__ __lt__ __and__ __invert__ softmax relu"
    )
    assert set(names.split()) - METHODS == set()


@pytest.mark.parametrize(
    "name",
    [
        "size",
        "dim",
        "numel",
        "stride",
        "is_contiguous",
        "is_floating_point",
        "__dlpack__",
        "__len__",
        "__repr__",
        "__hash__",
        "register_hook",
        "requires_grad_",
        "backward",
        "__deepcopy__",
        "__torch_function__",
        "data_ptr",
    ],
)
def test_what_only_asks_is_not_seen_and_says_why(name: str) -> None:
    assert name not in METHODS
    assert targets.reason_skipped(name)


def test_every_function_of_torchs_list_is_seen_or_has_a_reason() -> None:
    listed = torch.overrides.get_overridable_functions()
    for owner, seen in (
        (F, set(SEEN["torch.nn.functional"])),
        (torch, set(SEEN["torch"])),
        (torch.Tensor, METHODS),
    ):
        for function in listed[owner]:
            name = getattr(function, "__name__", "__get__")
            if name != "__get__" and hasattr(owner, name) and name not in seen:
                assert targets.reason_skipped(name), (owner, name)


def test_torch_has_what_the_table_names() -> None:
    for namespace in targets.namespaces():
        assert isinstance(namespace.module, types.ModuleType)
    for operator in targets.OPERATOR_NAMES:
        assert hasattr(torch.ops.aten, operator.removeprefix("aten::").partition(".")[0])


def families() -> dict[str, Callable[[], Any]]:
    """Name of a call, and what makes it: each family of the table."""
    x, y = torch.randn(4, 4), torch.ones(4, 4)
    sequence = torch.randn(2, 1, 4)
    lstm, gru, rnn = nn.LSTM(4, 4), nn.GRU(4, 4), nn.RNN(4, 4, nonlinearity="relu")
    optimizer = torch.optim.SGD([nn.Parameter(y.clone())])
    return {
        "torch.addmm": lambda: torch.addmm(y, x, x),
        "torch.einsum": lambda: torch.einsum("ij,jk", x, x),
        "torch.tensor": lambda: torch.tensor([1.0]),
        "torch.nn.functional.conv2d": lambda: F.conv2d(x[None, None], y[None, None]),
        "torch.nn.functional.max_pool2d": lambda: F.max_pool2d(x[None], 2),
        "torch.nn.functional.one_hot": lambda: F.one_hot(torch.tensor([1])),
        "torch.linalg.qr": lambda: torch.linalg.qr(x),
        "torch.fft.rfft": lambda: torch.fft.rfft(x),
        "torch.fft.fftfreq": lambda: torch.fft.fftfreq(4),
        "torch.special.expit": lambda: torch.special.expit(x),
        "torch._foreach_add": lambda: torch._foreach_add([x], 1),
        "torch._fused_sgd_": lambda: torch._fused_sgd_(
            [x.clone()], [y], [], weight_decay=0, momentum=0, lr=0.1, dampening=0, nesterov=False, maximize=False,
            is_first_step=True,
        ),
        "torch._int_mm": lambda: torch._int_mm(x.to(torch.int8), x.to(torch.int8)),
        "torch.lstm": lambda: lstm(sequence),
        "torch.gru": lambda: gru(sequence),
        "torch.rnn_relu": lambda: rnn(sequence),
        "torch.svd_lowrank": lambda: torch.svd_lowrank(x),
        "torch.unique": lambda: torch.unique(x),
        "torch.autograd.Square.apply": lambda: Square.apply(x),
        "torch.optim.SGD.step": lambda: optimizer.step(),
        "torch.optim.SGD.zero_grad": lambda: optimizer.zero_grad(),
        "Tensor.__getitem__": lambda: x[0],
        "Tensor.__setitem__": lambda: x.__setitem__(0, 1.0),
        "Tensor.to": lambda: x.to(torch.float64),
        "Tensor.half": lambda: x.half(),
        "Tensor.type": lambda: x.type(torch.int32),
        "Tensor.cpu": lambda: x.cpu(),
        "Tensor.contiguous": lambda: x.t().contiguous(),
        "Tensor.clone": lambda: x.clone(),
        "Tensor.copy_": lambda: x.copy_(y),
        "Tensor.new_zeros": lambda: x.new_zeros(3),
        "Tensor.unflatten": lambda: x.unflatten(0, (2, 2)),
        "Tensor.to_sparse_csr": lambda: x.to_sparse_csr(),
        "Tensor.uniform_": lambda: x.uniform_(),
        "torch.is_nonzero": lambda: torch.is_nonzero(x[0, 0]),
    }  # fmt: skip


class Square(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: torch.Tensor) -> torch.Tensor:
        return x * x


@pytest.mark.filterwarnings("ignore")
def test_a_call_of_each_family_is_recorded(record: Callable[..., Recorded]) -> None:
    made = families()
    recorded = record(lambda: [call() for call in made.values()])
    assert set(made) - set(recorded.names) == set()
    assert recorded.table("PYPROF_LOST") == {}


def test_batches_of_a_loader_are_ranges(record: Callable[..., Recorded]) -> None:
    loader = DataLoader(TensorDataset(torch.ones(4, 1)), batch_size=2)
    ranges = record(lambda: list(loader)).ranges
    assert [text for text, _ in ranges] == ["enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__"] * 3


def test_methods_that_move_to_a_device_are_seen() -> None:
    assert {
        "cuda",
        "xpu",
        "cpu",
        "to",
        "pin_memory",
        "bfloat16",
        "type_as",
        "index_put_",
        "scatter_add_",
    } <= METHODS


def test_collectives_are_those_that_move_data() -> None:
    """Every function of torch.distributed that takes a group and works on data, by its name."""
    assert set(SEEN["torch.distributed"]) <= set(targets.COLLECTIVES)
    moving = re.compile(r"all_|reduce|gather|scatter|broadcast|barrier|i?send|i?recv")
    public = [
        name for name in torch.distributed.distributed_c10d.__all__
        if moving.search(name) and type(vars(torch.distributed)[name]) is types.FunctionType
    ]  # fmt: skip
    assert set(public) - set(SEEN["torch.distributed"]) == set()
