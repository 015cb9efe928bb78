# SPDX-License-Identifier: Apache-2.0
"""Which category of work kernels and operators are in."""

from __future__ import annotations

from pathlib import Path

import pytest

import pyprof.costs.ops
from pyprof.costs import kernel_table
from pyprof.costs.kernels import FITS, kind
from pyprof.facts.device.categories import (
    CATEGORIES,
    CATEGORY_OF_FAMILY,
    CATEGORY_OF_KIND,
    FAMILIES_WITHOUT_CATEGORY,
    of_kernel,
    of_operator,
)

_NO_FAMILY = {"__init__", "shapes"}


def test_every_family_and_every_kind_of_kernel_has_its_place():
    files = {path.stem for path in Path(pyprof.costs.ops.__path__[0]).glob("*.py")} - _NO_FAMILY
    assert files == CATEGORY_OF_FAMILY.keys() | FAMILIES_WITHOUT_CATEGORY
    assert not CATEGORY_OF_FAMILY.keys() & FAMILIES_WITHOUT_CATEGORY
    kinds = {row.value for row in (*kernel_table.FUNCTIONS, *kernel_table.KINDS)} | frozenset().union(*FITS.values())
    assert kinds == CATEGORY_OF_KIND.keys() | {"other"}
    assert {
        *CATEGORY_OF_KIND.values(),
        *CATEGORY_OF_FAMILY.values(),
        "moe",
        "indexing",
        "other",
    } == CATEGORIES.keys()


@pytest.mark.parametrize(
    ("name", "category"),
    [
        ("volta_h884gemm_64x64_ldg8_nn", "gemm"),
        ("fused_moe_kernel", "gemm"),  # its products
        ("void vllm::moe::moe_align_block_size_kernel<int>(int*, int*)", "moe"),
        ("void vllm::moe::topkGating<4, 128, 4, 16, 64, int>(float*)", "moe"),
        ("void deep_ep::intranode::dispatch<8, 768>(int4*)", "communication"),
        (
            "void at::native::index_elementwise_kernel<128, 4, at::native::gpu_index_kernel<f> >(long)",
            "indexing",
        ),
        ("void at::native::_scatter_gather_elementwise_kernel<128, 8, f>(int, f)", "indexing"),
        (
            "void at::native::(anonymous namespace)::CatArrayBatchedCopy<float, unsigned int, 4>(float*)",
            "copy",
        ),
        ("void at::native::(anonymous namespace)::indexSelectLargeIndex<float, long>(float)", "indexing"),
        ("void at_cuda_detail::cub::DeviceRadixSortOnesweepKernel<Policy900, false, int>(Scatter)", "sort"),
        ("ncclDevKernel_AllGather_RING_LL(ncclDevKernelArgsStorage<4096ul>)", "communication"),
        ("memcpy HtoD", "copy"),
        ("mystery", None),
    ],
)
def test_kernels(name, category):
    assert of_kernel(kind(name), name) == category


@pytest.mark.parametrize(
    ("mod", "op", "category"),
    [
        ("aten", "aten::mm", "gemm"),
        ("aten", "aten::native_layer_norm_backward", "normalization"),
        ("autograd", "autograd::engine::evaluate_function: AddmmBackward0", "gemm"),
        ("aten", "aten::_scaled_dot_product_flash_attention", "attention"),
        ("Tensor", "__iadd__", "elementwise"),
        ("c10d", "c10d::allreduce_", "communication"),
        ("aten", "aten::linalg_svd", None),
        ("", "mystery", None),
    ],
)
def test_operators(mod, op, category):
    assert of_operator(mod, op) == category
