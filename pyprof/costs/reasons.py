# SPDX-License-Identifier: Apache-2.0
"""Reasons why an operator of torch has no formula, as data: every operator has one or the other.

Names are patterns of fnmatch over the bare name; the first row that matches applies. Such a call has the cost
`UNKNOWN` ("na"), or the default rule if its event carries the work. Add a reason: one row.

>>> reason("q_scale"), reason("mm") is None
("reads only the tensor's description, runs no kernel", True)
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from fnmatch import fnmatchcase
from functools import cache

from pyprof.core.model import Call, Tensor

METADATA = "reads only the tensor's description, runs no kernel"
PROTOCOL = "part of Python's object protocol"
SPARSE = "sparse: the work depends on the number of non-zero elements, which is not recorded"
NESTED = "nested tensors: the lengths of the sequences are data"
PACKED = "the weight is a packed object that has no recorded shape"
COMPOSITE = "runs other operators, which are recorded themselves"
TEST = "exists for torch's own tests"
PREPACK = "packs weights once for a backend, in an undocumented layout"
DATA = "the work depends on data"
SELECTED = "it may read only what its indices select, and how much that is does not follow from the recorded shapes"
INTERNAL = "internal to dispatch, autograd transforms or tracing"
HOST = "works on Python values or on the library's state, not on tensors"
# Reasons that imply that nothing is moved.
COSTLESS = frozenset({METADATA, PROTOCOL, HOST})

REASONS: list[tuple[str, str]] = [
    *((name, METADATA) for name in (
        "q_scale", "q_zero_point", "q_per_channel_*", "qscheme", "is_*", "_is_view", "_is_zerotensor", "dense_dim",
        "sparse_dim", "_dimI", "_dimV", "_nnz", "dim_order", "storage", "storage_type", "untyped_storage",
        "const_data_ptr", "_version", "output_nr", "retains_grad", "device", "data", "grad",
        "_shape_as_tensor", "_has_same_storage_numel", "_size_if_not_equal", "_infer_size", "sym_*", "_sym_sqrt",
        "_use_cudnn_*", "_use_miopen_*", "matrix_H", "numpy_T", "_reshape_from_tensor", "_dim_arange",
        "_cudnn_init_dropout_state",
    )),
    *((name, PROTOCOL) for name in (
        "__array_wrap__", "__deepcopy__", "__dlpack*", "__format__", "__reduce_ex__", "__repr__", "__setstate__",
        "module_load", "_clear_non_serializable_cached_data", "share_memory_", "map_", "map2_",
        "apply_", "register_post_accumulate_grad_hook", "autocast",
    )),
    *((name, SPARSE) for name in (
        "_sparse_*", "sparse_*", "*_sparse", "to_sparse*", "_to_sparse*", "*coalesce*", "*ccol_indices*",
        "*crow_indices*", "*col_indices*", "*row_indices*", "_indices_copy", "indices_copy", "_values_copy",
        "values_copy", "smm", "sspaddmm", "hspmm", "dsmm", "hsmm", "saddmm", "spmm", "_spdiags", "_spsolve",
        "to_dense*", "_to_dense", "copy_sparse_to_sparse*", "resize_as_sparse*", "_convert_indices_from_*",
        "_validate_*", "_rowwise_prune", "_cslt_compress", "_cslt_sparse_mm_search", "_gather_sparse_backward",
    )),
    *((name, NESTED) for name in (
        "_nested_*", "nested_*", "*jagged*", "to_padded_tensor",
    )),
    *((name, PACKED) for name in (
        "fbgemm_linear_*_weight*", "quantized_lstm", "quantized_gru", "_wrapped_quantized_linear_prepacked",
    )),
    *((name, PREPACK) for name in (
        "fbgemm_linear_quantize_weight", "fbgemm_pack_*", "_wrapped_linear_prepack", "_convert_weight_to_int4pack*",
        "_dyn_quant_pack_4bit_weight", "_cudnn_rnn_flatten_weight", "to_mkldnn_backward",
    )),
    *((name, COMPOSITE) for name in (
        "multi_head_attention_forward", "linear_cross_entropy", "lobpcg", "svd_lowrank", "pca_lowrank",
        "_convolution_double_backward", "cumprod_backward", "cummaxmin_backward", "matrix_exp_backward",
        "masked_scatter_backward", "masked_select_backward", "gather_backward", "index_select_backward",
        "glu_backward_jvp", "__upsample*", "_segment_reduce_backward", "lstm_mps_backward", "histogramdd",
        "_histogramdd_*", "_pack_sequence", "flatten_dense_tensors", "unflatten_dense_tensors", "backward",
        "_backward", "dist_backward", "_no_grad_embedding_renorm_",
    )),
    *((name, DATA) for name in ("_sobol_engine_*", "_fill_mem_eff_dropout_mask_", "_resize_output*")),
    *((name, TEST) for name in ("_test_*", "_foobar")),
    *((name, INTERNAL) for name in (
        "_add_batch_dim", "_remove_batch_dim", "_fw_primal*", "_make_dual*", "_unpack_dual", "_assert_*",
        "_functional_assert_*", "_functional_sym_*", "_make_dep_token", "_print", "_propagate_xla_data", "_copy_from*",
        "_new_zeros_with_same_feature_meta", "_efficientzerotensor", "_linalg_check_errors", "_ncf_*", "set_data",
        "_make_per_*_quantized_tensor", "_empty_*_quantized", "empty_quantized", "_philox_key_*", "_set_item",
        "_tensor_to_list", "_list_to_tensor", "from_file", "_to_cpu",
    )),
]  # fmt: skip

# Operators of `aten` that TorchScript lists for Python's own types and for remote references.
PYTHON_OPERATORS = (
    "Bool", "Complex", "ComplexImplicit", "Delete", "Float", "FloatImplicit", "Generator", "Int", "IntImplicit",
    "ScalarImplicit", "Size", "__derive_index", "__is__", "__isnot__", "__not__", "__range_length",
    "__round_to_zero_floordiv", "_cufft_*", "_get_cpu_capability", "_get_tracing_state", "_unwrap_optional",
    "append", "bin", "capitalize", "center", "chr", "clear", "confirmed_by_owner", "count", "degrees", "dict",
    "divmod", "endswith", "expandtabs", "extend", "fabs", "factorial", "find", "format", "gamma", "get",
    "get_autocast_dtype", "get_gradients", "hash", "hex", "initial_seed", "insert", "isal*", "isd*", "isi*",
    "islower", "isn*", "isp*", "isspace", "ist*", "isupper", "items", "join", "keys", "len", "list", "ljust",
    "local_value", "lower", "lstrip", "manual_seed", "mathremainder", "modf", "oct", "ord", "owner",
    "owner_name", "partition", "percentFormat", "pop", "popitem", "radians", "range", "remove", "replace",
    "reverse", "rfind", "rindex", "rjust", "rpartition", "rsplit", "rstrip", "save", "seed", "set_grad_enabled",
    "setdefault", "sorted", "splitlines", "startswith", "str", "strip", "swapcase", "title", "to_here",
    "update", "upper", "wait", "warn", "zfill",
)  # fmt: skip
REASONS += [(name, HOST) for name in PYTHON_OPERATORS]


@cache
def reason(name: str) -> str | None:
    """Return why there is no formula for a bare name; None if no row matches.

    >>> reason("_sparse_mm")[:7], reason("no_such_operator") is None
    ('sparse:', True)
    """
    return next((text for pattern, text in REASONS if fnmatchcase(name, pattern)), None)


def reason_of(call: Call) -> str | None:
    """Return why a call of torch's has no formula. Other libraries' operators may share a name and nothing else.

    >>> reason_of(Call("aten", "aten::_sparse_mm.reduce")) == SPARSE, reason_of(Call("mine", "mine::backward"))
    (True, None)
    """
    space, _, name = call.op.rpartition("::")
    return reason(name.partition(".")[0]) if space in ("", "aten", "prims") else None


_SELECTS = re.compile(
    r"(?<!all)(?<!all_)gather|(?<!reduce)(?<!reduce_)scatter|embedding|lookup|paged|kv_?cache"
    r"|(?:^|_)(?:index|take|put)(?:_|$)",
    re.IGNORECASE,
)
_INDICES = frozenset(["int32", "int64"])


def selects(name: str, tensors: Iterable[Tensor]) -> bool:
    """Return whether an operator may read or write only a part of an operand, chosen by indices: its bare name says so,
    or it takes indices beside other tensors. Its operands then do not count as a whole: an embedding reads a few rows
    of a table of gigabytes.

    >>> table, numbers = Tensor((10**9,), "float32"), Tensor((768,), "int64")
    >>> selects("split_lookup", [table]), selects("warp", [table, numbers]), selects("complete_cumsum", [numbers])
    (True, True, False)
    >>> selects("index_select", []), selects("bounds_check_indices", []), selects("_allgather_base", [])
    (True, False, False)
    """
    types = {tensor.dtype for tensor in tensors if tensor.numel}
    return bool(_SELECTS.search(name)) or bool(types & _INDICES and types - _INDICES)
