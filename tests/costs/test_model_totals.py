# SPDX-License-Identifier: Apache-2.0
"""Totals of well-known models beside the published ones: FLOPs within 1 %, parameters to the last one.

Published counts are of products (convolutions, linear layers, attention) and mostly call a multiply-add one FLOP; ours
is 2. They leave out what else a model does (normalisation, activations, pooling, residual adds, embeddings): `others`
is the share that this adds to ours, which is why totals of all calls are a little higher.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import pandas as pd
import pytest
import torch

import pyprof
from tests import models


class Published(NamedTuple):
    build: Callable[[], torch.nn.Module]
    shape: tuple[int, ...]  # of an image, or of words
    parameters: int
    macs: float
    tolerance: float  # half a unit of the last digit that is published, at most 1 %
    others: float  # at most so much more with everything that is no product
    source: str


TORCHVISION = "torchvision, documentation of the weights: num_params and GFLOPS (of multiply-adds), in full in `_ops`"
TABLE = [
    # The paper has 3.8e9: there the stride stands in the 1×1 convolutions (v1).
    Published(models.resnet50, (1, 3, 224, 224), 25_557_032, 4.089e9, 2e-4, 0.01, TORCHVISION),
    Published(models.vgg16, (1, 3, 224, 224), 138_357_544, 15.47e9, 4e-4, 0.001, TORCHVISION),
    # Table 4 of the paper: 300M multiply-adds, 3.4M parameters. Cheap convolutions: normalisation weighs more.
    Published(models.mobilenet_v2, (1, 3, 224, 224), 3_504_872, 0.301e9, 2e-3, 0.07, TORCHVISION),
    # Table 2 of the paper: 0.39B, 5.3M.
    Published(models.efficientnet_b0, (1, 3, 224, 224), 5_288_548, 0.386e9, 2e-3, 0.06, TORCHVISION),
    # With the two products of attention (0.72e9), which counters that go by modules leave out.
    Published(models.ViT, (1, 3, 224, 224), 86_567_656, 17.564e9, 3e-5, 0.004, TORCHVISION),
    # 22.5e9 FLOPs for 128 words. Ours is 0.7 % less: the table has normalisation and activations as well, and the
    # paper does not say how it counts them. Parameters: the paper's 110M; 30522, 512 and 2 vectors of 768, 12 layers
    # of 12·768² + 13·768, three norms' 2·768 counted there, the first norm and the pooler of 768² + 768.
    Published(models.Bert, (1, 128), 109_482_240, 22.5e9 / 2, 0.01, 0.004, "TinyBERT (arXiv 1909.10351), table 1"),
    # Here a FLOP of the table is a FLOP. Parameters with biases, 102 144 more than in the notebook.
    Published(
        models.GPT2,
        (1, 1024),
        124_439_808,
        291_648_307_200 / 2,
        0,
        0.002,
        "nanoGPT, transformer_sizing.ipynb",
    ),
    # 128 words; per word 6.64e9, of which 6.607e9 are the weights of the linear layers and 0.03e9 attention.
    Published(models.Llama2, (1, 128), 6_738_415_616, 850.00e9, 1e-5, 0.001, "calflops, README: llama2-7b"),
]


def estimate(build: Callable[[], torch.nn.Module], shape: tuple[int, ...]) -> tuple[torch.nn.Module, pd.DataFrame]:
    """The calls of one inference on meta tensors."""
    with torch.device("meta"):
        model = build().eval()
        words = len(shape) == 2
        x = torch.empty(shape, dtype=torch.long if words else None)
    return model, pyprof.estimate(model, x)


def products(frame: pd.DataFrame) -> pd.DataFrame:
    return frame[frame.tc_eligible == "tf32"]


@pytest.mark.parametrize("row", [
    pytest.param(row, id=row.build.__name__, marks=[pytest.mark.long] if number % 3 else [])
    for number, row in enumerate(TABLE)
])  # fmt: skip
def test_totals_agree_with_the_published_ones(row: Published) -> None:
    model, frame = estimate(row.build, row.shape)
    assert sum(parameter.numel() for parameter in model.parameters()) == row.parameters
    assert not frame.flops.isna().any(), "every call has FLOPs"
    assert set(frame.basis) <= {"formula", "view"}
    macs = products(frame).flops_dense.sum() / 2
    assert abs(macs - row.macs) <= row.tolerance * row.macs, row.source
    assert 0 < frame.flops_dense.sum() / 2 / macs - 1 < row.others


def test_the_layers_of_gpt2_agree_with_the_published_ones_exactly() -> None:
    """nanoGPT's transformer_sizing.ipynb has a row per layer, without biases; attention there is dense."""
    model, frame = estimate(lambda: models.GPT2(bias=False), (1, 1024))
    assert sum(parameter.numel() for parameter in model.parameters()) == 124_337_664
    products_of = products(frame).groupby(products(frame).module.str.replace(r"^blocks\.\d+", "block", regex=True))
    assert products_of.flops_dense.sum().to_dict() == {
        "block": 12 * (1_610_612_736 + 1_610_612_736),  # scores and reduce, both in one call
        "block.kqv": 12 * 3_623_878_656,
        "block.proj": 12 * 1_207_959_552,
        "block.ffw1": 12 * 4_831_838_208,
        "block.ffw2": 12 * 4_831_838_208,
        "dense": 79_047_426_048,
    }
    assert products(frame).flops_dense.sum() == 291_648_307_200


def test_causal_attention_executes_the_triangle_and_its_backward_five_products() -> None:
    _, frame = estimate(lambda: models.GPT2(bias=False), (1, 1024))
    attention = frame[frame.op == "scaled_dot_product_attention"]
    triangle = 1024 * 1025 // 2  # pairs of a word and one that it may see
    assert set(attention.flops) == {2 * 2 * 768 * triangle}
    assert set(attention.flops_dgrad) == {5 * 2 * 768 * triangle}, "the scores again, and four gradients"


def test_the_backward_of_products_is_twice_the_forward() -> None:
    """The "6 N D" of papers: 2 forward, 4 backward (Kaplan et al., arXiv 2001.08361, section 2.1)."""
    _, frame = estimate(models.vgg16, (1, 3, 224, 224))
    rows = products(frame)
    assert (rows.flops_dgrad + rows.flops_wgrad).sum() == 2 * rows.flops.sum()


def test_flops_grow_with_the_batch_and_parameters_do_not() -> None:
    one, two = (estimate(models.resnet50, (n, 3, 224, 224))[1] for n in (1, 2))
    assert products(two).flops.sum() == 2 * products(one).flops.sum()
