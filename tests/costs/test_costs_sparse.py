# SPDX-License-Identifier: Apache-2.0
"""Costs that a recording does not tell: of sparse tensors, whose stored elements are not recorded, and of operators
that move elements by indices that are not."""

from __future__ import annotations

import pytest
import torch

import pyprof
from pyprof.core.model import Arg, Call, Tensor
from pyprof.costs.cost import lookup, lookup_or_default
from pyprof.costs.unknown_costs import why
from pyprof.parse.tracejson.arguments import call as tracejson_call


@pytest.mark.parametrize(
    "name",
    ["index", "gather", "index_select", "embedding", "take", "masked_select", "take_along_dim", "index_copy_",
     "masked_fill_", "nonzero"],
)  # fmt: skip
@pytest.mark.parametrize("args", [(), (Tensor((10, 4), "float32"),), (Tensor((10, 4), "float32"), None)])
def test_what_only_moves_elements_computes_nothing_whatever_was_recorded(name, args):
    """A trace has no indices in a list, and a short list of arguments where an exporter left out some."""
    found = lookup(Call("aten", f"aten::{name}", tuple(Arg("", value) for value in args)))
    assert found.flops == 0 or (name in ("masked_select", "nonzero") and not args)


@pytest.mark.parametrize("name", ["scatter", "scatter_add_", "index_add_", "index_put_", "scatter_reduce_", "put_"])
def test_what_may_add_is_unknown_without_its_arguments(name):
    assert lookup(Call("aten", f"aten::{name}", (Arg("", Tensor((10, 4), "float32")),))).flops is None


SPARSE_MATRIX, DENSE = Tensor((60, 50), "float32", ()), Tensor((50, 32), "float32")


@pytest.mark.parametrize(
    ("op", "args"),
    [
        ("mm", (SPARSE_MATRIX, DENSE)),
        ("matmul", (SPARSE_MATRIX, DENSE)),
        ("bmm", (Tensor((2, 60, 50), "float32", ()), Tensor((2, 50, 32), "float32"))),
        ("addmm", (Tensor((60, 32), "float32"), SPARSE_MATRIX, DENSE)),
        ("mv", (SPARSE_MATRIX, Tensor((50,), "float32"))),
        ("add", (SPARSE_MATRIX, SPARSE_MATRIX)),
        ("linear", (Tensor((8, 50), "float32"), SPARSE_MATRIX)),
    ],
)
@pytest.mark.parametrize("mod", ["torch", "aten"])
def test_a_sparse_product_is_not_counted_as_a_dense_one(mod, op, args):
    call = Call(mod, f"aten::{op}" if mod == "aten" else op, tuple(Arg("", value) for value in args))
    for found in (lookup(call), lookup_or_default(call)):
        assert (found.flops, found.bytes) == (None, None)
    assert "non-zero elements" in why(call)


def test_a_trace_has_sparse_tensors_where_torch_wrote_strides():
    """Input Strides of a sparse tensor are []; exports leave out those of all contiguous ones, and these are dense."""
    shapes, types = b"[[60, 50], [50, 32]]", b'["float", "float"]'
    key = ("aten::mm", shapes, types, b"[[], [32, 1]]", b"")
    assert [arg.value.is_sparse for arg in tracejson_call(key).args] == [True, False]
    for strides in (b"[[], []]", b"", b"[[], [1, 50]]", b"[[50, 1], [32, 1]]"):
        key = ("aten::mm", shapes, types, strides, b"")
        assert not any(arg.value.is_sparse for arg in tracejson_call(key).args)
    key = ("aten::sum", b"[[]]", b'["float"]', b"[[]]", b"")
    assert not tracejson_call(key).args[0].value.is_sparse  # a scalar has no strides either


def sparse_matrix():
    matrix = torch.zeros(60, 50)
    matrix[torch.arange(50), torch.arange(50)] = 1.0
    return matrix


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("layout", ["to_sparse", "to_sparse_csr", "to_sparse_csc"])
@pytest.mark.parametrize("work", ["@", "mm", "sparse.mm", "addmm"])
def test_sparse_products_of_programs_are_unknown(layout, work, tmp_path):
    """In an estimate and in a recording; the dense product beside them is known: 2·60·50·32."""
    sparse, dense = getattr(sparse_matrix(), layout)(), torch.randn(50, 32)
    added = torch.zeros(60, 32)
    functions = {
        "@": lambda: sparse @ dense, "mm": lambda: torch.mm(sparse, dense),
        "sparse.mm": lambda: torch.sparse.mm(sparse, dense), "addmm": lambda: torch.addmm(added, sparse, dense),
    }  # fmt: skip
    if layout == "to_sparse_csc" and work in ("addmm", "sparse.mm"):
        pytest.skip("torch has none")
    assert pyprof.estimate(functions[work])["flops"].isna().any()
    with pyprof.profile(tmp_path / "net.sqlite"):
        functions[work]()
        torch.mm(torch.randn(60, 50), dense)
    pyprof.shutdown()
    rows = pyprof.load(tmp_path / "net.sqlite").kernels
    assert rows[rows["flops"] > 1000]["flops"].tolist() == [192_000]
    assert rows[rows["op_id"] == rows["op_id"].iloc[0]]["flops"].isna().any()
