# SPDX-License-Identifier: Apache-2.0
"""Functions recorded as calls, as data: the names of each namespace, and the reason for each exclusion.

The base is torch's own list of functions that compute on tensors (`torch.overrides.get_overridable_functions`), plus
the tables below; steps of optimizers and loaders are followed in `user_ranges.py`. An excluded name still appears as
an operator, if it runs one.

Nothing here is ever *replaced* in a module: see `patch.py`. So functions that torch or a library compares by
identity (`F.scaled_dot_product_attention` in the attention bias classes, `F.relu` and `F.gelu` in the fast path of
TransformerEncoderLayer, `F.conv1d/2d/3d` in expanded weights) keep theirs.
"""

from __future__ import annotations

from collections.abc import Iterable
from types import BuiltinFunctionType, ModuleType
from typing import Any, NamedTuple

import torch

from pyprof.capture.core.torch_internals import look_up


def _check_module(value: Any) -> None:
    if not isinstance(value, ModuleType):
        raise TypeError("is not a module")


_NN = look_up(
    "torch._C._nn",
    "calls of functions that were imported from torch.nn.functional by name",
    check=_check_module,
)
_VF = look_up("torch._VF", "calls of LSTM, GRU and RNN modules", check=_check_module)
_FUNCTIONS = look_up("torch._C._VariableFunctions", "calls of functions of torch that make tensors")


class Namespace(NamedTuple):
    """Module whose functions are recorded: its name for the user, and the prefix of its functions inside torch."""

    module: ModuleType
    mod: str
    inner_prefix: str = ""


def namespaces() -> list[Namespace]:
    """Return the modules, with the user's name for each."""
    out = [
        Namespace(torch.nn.functional, "torch.nn.functional"),
        Namespace(torch, "torch"),
        Namespace(torch.linalg, "torch.linalg", "linalg_"),
        Namespace(torch.fft, "torch.fft", "fft_"),
        Namespace(torch.special, "torch.special", "special_"),
    ]
    if _NN is not None:  # called by functions of F that were imported by name
        out.append(Namespace(_NN, "torch.nn.functional"))
    if _VF is not None:  # LSTM, GRU and RNN modules call these
        out.append(Namespace(_VF, "torch"))
    if torch.distributed.is_available():  # part of `import torch`; nothing of it is started here
        out.append(Namespace(torch.distributed, "torch.distributed"))
    return out


# Names with a leading underscore that the user's code runs: (prefix or name, reason).
PRIVATE = {
    "_foreach_": "optimizers and gradient clipping on lists of tensors",
    "_fused_adam": "fused optimizers",
    "_fused_sgd_": "fused optimizers",
    "_fused_adagrad_": "fused optimizers",
    "_amp_": "what GradScaler runs",
    "_scaled_mm": "float8 matrix product",
    "_int_mm": "int8 matrix product",
    "_weight_int": "products with int4 and int8 weights",
    "_has_compatible_shallow_copy_type": "what moving or casting a module asks of each parameter",
    "_grouped_mm": "mixture of experts",
    "_scaled_grouped_mm": "mixture of experts",
}

# Functions that torch does not list as overridable, but that run kernels. (Most of those that make a tensor are in
# the same list of the dispatcher as the operators.)
MORE = {
    torch: ("as_tensor", "asarray", "from_numpy", "tensor", "vander", "unique", "svd_lowrank", "pca_lowrank"),
    torch.fft: ("fftfreq", "rfftfreq"),
}

# torch.distributed: functions that move data or wait for other ranks. Names that a torch lacks are skipped.
COLLECTIVES = (
    "all_reduce", "all_reduce_coalesced", "reduce", "reduce_scatter", "reduce_scatter_tensor", "reduce_scatter_single",
    "all_gather", "all_gather_into_tensor", "all_gather_single", "all_gather_coalesced", "all_gather_object",
    "all_to_all", "all_to_all_single", "broadcast", "broadcast_object_list", "gather", "gather_object", "scatter",
    "scatter_object_list", "send", "recv", "isend", "irecv", "batch_isend_irecv", "send_object_list",
    "recv_object_list", "barrier", "monitored_barrier",
)  # fmt: skip

RNN = ("lstm", "lstm_cell", "gru", "gru_cell", "rnn_tanh", "rnn_tanh_cell", "rnn_relu", "rnn_relu_cell")

_PREDICATE = "answers from the tensor's description, runs no kernel"
_HOST = "not the usual way to read a value, or runs no operator"
_PROTOCOL = "part of Python's object protocol"
_HOOK = "registers something for later"
_NEVER_CALLED = "does not run an operator of its own"

# Methods that bring values of a tensor to the host, and so wait for a GPU: each is a call, with its line. Inside a
# recorded call they are part of it. `cpu` and `to` are ordinary methods.
HOST = (
    "item", "tolist", "numpy", "is_nonzero", "__bool__", "__int__", "__float__", "__complex__", "__index__",
    "__array__", "__contains__",
)  # fmt: skip

# Name -> reason why it is not recorded as a call, in every namespace.
SKIPPED: dict[str, str] = {
    **dict.fromkeys(
        ("size", "dim", "ndimension", "stride", "numel", "nelement", "data_ptr", "const_data_ptr", "element_size",
         "storage", "untyped_storage", "storage_offset", "storage_type", "get_device", "dim_order", "dense_dim",
         "sparse_dim", "has_names", "names", "layout", "qscheme", "q_scale", "q_zero_point", "q_per_channel_axis",
         "q_per_channel_scales", "q_per_channel_zero_points", "result_type", "can_cast", "promote_types",
         "_nested_tensor_size"), _PREDICATE),
    **dict.fromkeys(
        ("__nonzero__", "__long__", "__array_wrap__", "__dlpack__", "__dlpack_device__"), _HOST),
    **dict.fromkeys(
        ("__repr__", "__str__", "__format__", "__hash__", "__len__", "__iter__", "__reduce__", "__reduce_ex__",
         "__deepcopy__", "__copy__", "__setstate__", "__getstate__", "__dir__", "__torch_function__",
         "__torch_dispatch__", "__new__", "__init__", "__reversed__", "__class__", "module_load"), _PROTOCOL),
    **dict.fromkeys(
        ("register_hook", "register_post_accumulate_grad_hook", "retain_grad", "requires_grad_", "record_stream",
         "share_memory_", "as_subclass"), _HOOK),
    **dict.fromkeys(("map_", "map2_", "apply_"), "runs a Python function per element"),
    **dict.fromkeys(
        ("autocast", "has_torch_function", "has_torch_function_unary", "has_torch_function_variadic",
         "assert_int_or_pair", "init_num_threads", "cudnn_is_acceptable", "get_default_dtype"), _NEVER_CALLED),
    "backward": "the backward is recorded as autograd nodes; as a call it would hide them",
    "multi_head_attention_forward": "several products and an attention: each is a call of its own",
}  # fmt: skip


def reason_skipped(name: str) -> str | None:
    """Return why a name is not recorded as a call, None if it is."""
    if name in SKIPPED:
        return SKIPPED[name]
    if name in HOST:
        return None
    if name.startswith(("is_", "sym_")):
        return _PREDICATE
    if name.startswith("_") and not (name.startswith("__") and name.endswith("__")):
        return None if name.startswith(tuple(PRIVATE)) else "private"
    return None


# Operators that are the entire body of one function of torch.nn.functional. Called through a name imported before the
# window, or from inside that module, such a call appears only as the operator: it gets the user's name. For an
# operator that is also a method of a tensor (relu, softmax) the origin is ambiguous, and it stays `aten`.
OPERATOR_NAMES = {
    f"aten::{name}": ("torch.nn.functional", name)
    for name in (
        "conv1d", "conv2d", "conv3d", "conv_transpose1d", "conv_transpose2d", "conv_transpose3d", "conv_tbc", "linear",
        "gelu", "scaled_dot_product_attention",
    )
}  # fmt: skip


def functions(namespace: Namespace) -> list[tuple[str, str]]:
    """Return (attribute, the user's name of it) of each function of a module that is recorded as a call."""
    module = namespace.module
    if module is _VF:
        return [(name, name) for name in RNN]
    if module is torch.distributed:
        return [(name, name) for name in COLLECTIVES if callable(vars(module).get(name))]
    if module is _NN:
        names: Iterable[str] = (name for name in dir(module) if not name.startswith("_"))
    elif module is torch:
        dispatched = (name for name in dir(_FUNCTIONS) if name in vars(torch))
        names = [*_overridable(module), *dispatched, *MORE[module]]
    elif module is torch.nn.functional:
        names = [*_overridable(module), *(name for name, value in vars(module).items() if _belongs(value))]
    else:
        names = [*_overridable(module), *MORE.get(module, ())]
    out = {}
    for name in names:
        attribute = name.removeprefix(namespace.inner_prefix)
        if reason_skipped(attribute) is None and callable(getattr(module, attribute, None)):
            out[attribute] = attribute
    return list(out.items())


def _belongs(value: Any) -> bool:
    """Return whether an entry of torch.nn.functional is a function of it, not one imported for its own use."""
    return isinstance(value, BuiltinFunctionType) or getattr(value, "__module__", "") == "torch.nn.functional"


def tensor_methods() -> list[str]:
    """Return the methods and operators of torch.Tensor that are recorded as calls."""
    names = []
    for name in dict.fromkeys(_overridable(torch.Tensor)):
        if reason_skipped(name) is None and callable(getattr(torch.Tensor, name, None)):
            names.append(name)
    return names


# Operators of Python, and methods, that torch.overrides does not list.
_MORE_METHODS = (
    "__getitem__", "__setitem__", "__neg__", "__pos__", "__abs__", "__pow__", "__ipow__", "__rpow__", "__rsub__",
    "__rdiv__", "__rtruediv__", "__itruediv__", "__rmatmul__", "__imatmul__", "__rfloordiv__", "to", "contiguous",
    "new_empty", "new_empty_strided", "new_full", "new_ones", "new_tensor", "new_zeros", "to_padded_tensor",
    "to_sparse_bsc", "to_sparse_bsr", "to_sparse_coo", "to_sparse_csc", "to_sparse_csr", "unflatten",
)  # fmt: skip


def _overridable(owner: Any) -> list[str]:
    """Return the names of a module's or class's functions that torch lists; properties (named __get__) are not
    calls."""
    listed: list[Any] = torch.overrides.get_overridable_functions()[owner]
    names = [name for name in (getattr(function, "__name__", "__get__") for function in listed) if name != "__get__"]
    if owner is torch.Tensor:
        names += [name for name in (*_MORE_METHODS, *HOST) if hasattr(torch.Tensor, name)]
    return names
