# SPDX-License-Identifier: Apache-2.0
"""The target table: what a user calls is seen, what only asks is not, and each omission has its reason."""

from __future__ import annotations

import types

import pytest
import torch
import torch.nn.functional as F

from pyprof.capture import targets

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
        "item",
        "tolist",
        "numpy",
        "__bool__",
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
