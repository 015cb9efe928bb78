#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Operators whose costs hardware counters check: run below Nsight Compute, which counts, and alone, which estimates.

ncu --clock-control none --profile-from-start off --nvtx --csv --page raw --metrics ... python scripts/gpu/counters.py
python scripts/gpu/counters.py estimate FILE     writes what PyProf says of the same calls

Each operator runs inside an NVTX range of its name, on inputs larger than the cache.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

import torch
import torch.nn.functional as F

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
S = 4096 if DEVICE == "cuda" else 32


def cases() -> dict[str, Callable[[], Any]]:
    def rand(*shape: int, dtype: Any = torch.float32, grad: bool = False) -> torch.Tensor:
        return torch.randn(*shape, device=DEVICE).to(dtype).requires_grad_(grad)

    half, brain = torch.float16, torch.bfloat16
    a, b = rand(S, S), rand(S, S)
    ab, bb = a.to(brain), b.to(brain)
    ah, bh = a.to(half), b.to(half)
    ad, bd = rand(S // 2, S // 2, dtype=torch.float64), rand(S // 2, S // 2, dtype=torch.float64)
    batch = rand(64, 512, 512, dtype=brain)
    image = rand(32, 64, 112, 112, dtype=half).to(memory_format=torch.channels_last) if S > 32 else rand(2, 64, 8, 8)
    k3, k1 = rand(128, 64, 3, 3, dtype=image.dtype), rand(64, 64, 1, 1, dtype=image.dtype)
    deep = rand(64, 1, 3, 3, dtype=image.dtype)
    plain = rand(32, 64, 112, 112) if S > 32 else rand(2, 64, 8, 8)
    q, k, v = (rand(4, 16, S // 2, 64, dtype=brain, grad=True) for _ in range(3))
    wide = rand(S, S, dtype=brain)
    weight, bias = rand(S, dtype=brain), rand(S, dtype=brain)
    table, index = rand(50000 if S > 32 else 50, 1024), torch.randint(50, (64, 512), device=DEVICE)
    if S > 32:
        index = torch.randint(50000, (64, 512), device=DEVICE)
    params = [rand(S, S, grad=True) for _ in range(2)]
    for one in params:
        one.grad = rand(S, S)
    adam = torch.optim.AdamW(params, fused=True)
    foreach = torch.optim.SGD(params, lr=0.1, momentum=0.9, foreach=True)
    logits, labels = rand(S, S, grad=True), torch.randint(S, (S,), device=DEVICE)
    loss = F.cross_entropy(logits, labels)
    out = {
        "flash": F.scaled_dot_product_attention(q, k, v),
        "causal": F.scaled_dot_product_attention(q, k, v, is_causal=True),
    }
    seed = torch.ones_like(out["flash"])
    linear = F.linear(wide.detach().requires_grad_(), bb.detach().requires_grad_())
    return {
        "mm fp32": lambda: a @ b, "mm bf16": lambda: ab @ bb, "mm fp16": lambda: ah @ bh, "mm fp64": lambda: ad @ bd,
        "addmm bf16": lambda: torch.addmm(bias, ab, bb), "bmm bf16": lambda: torch.bmm(batch, batch),
        "mv fp32": lambda: torch.mv(a, b[0]),
        "conv 3x3 fp16 nhwc": lambda: F.conv2d(image, k3, padding=1),
        "conv 1x1 fp16 nhwc": lambda: F.conv2d(image, k1),
        "conv depthwise fp16 nhwc": lambda: F.conv2d(image, deep, padding=1, groups=64),
        "conv 3x3 fp32": lambda: F.conv2d(plain, k3.float(), padding=1),
        "flash forward": lambda: F.scaled_dot_product_attention(q.detach(), k.detach(), v.detach()),
        "flash causal forward": lambda: F.scaled_dot_product_attention(
            q.detach(), k.detach(), v.detach(), is_causal=True
        ),
        "flash backward": lambda: torch.autograd.grad(out["flash"], (q, k, v), seed, retain_graph=True),
        "flash causal backward": lambda: torch.autograd.grad(out["causal"], (q, k, v), seed, retain_graph=True),
        "linear backward": lambda: linear.sum().backward(retain_graph=True),
        "add fp32": lambda: a + b, "add bf16": lambda: ab + bb, "broadcast add bf16": lambda: ab + bias,
        "gelu bf16": lambda: F.gelu(ab), "silu fp32": lambda: F.silu(a), "cast": lambda: a.to(brain),
        "transpose copy": lambda: a.t().contiguous(), "softmax bf16": lambda: torch.softmax(ab, -1),
        "layer_norm bf16": lambda: F.layer_norm(wide, (S,), weight, bias), "sum fp32": lambda: a.sum(),
        "sum rows fp32": lambda: a.sum(-1), "batch_norm fp32": lambda: F.batch_norm(plain, None, None, training=True),
        "max_pool fp32": lambda: F.max_pool2d(plain, 3, 2, 1), "embedding": lambda: F.embedding(index, table),
        "cross_entropy": lambda: F.cross_entropy(logits.detach(), labels),
        "cross_entropy backward": lambda: torch.autograd.grad(loss, logits, retain_graph=True),
        "dropout": lambda: F.dropout(a, 0.5), "adamw fused": lambda: adam.step(),
        "sgd foreach": lambda: foreach.step(), "cumsum": lambda: a.cumsum(-1), "sort": lambda: torch.sort(a[:256]),
        "index_select": lambda: table.index_select(0, index[0]), "cat": lambda: torch.cat([a, b]),
        "where": lambda: torch.where(a > 0, a, b), "upsample": lambda: F.interpolate(plain, scale_factor=2),
    }  # fmt: skip


def main() -> None:
    work = cases()
    for function in work.values():
        for _ in range(2):
            function()
    if DEVICE == "cuda":
        torch.cuda.synchronize()
    if sys.argv[1:2] == ["estimate"]:
        import pyprof

        with pyprof.profile(sys.argv[2]):
            for name, function in work.items():
                with torch.autograd.profiler.record_function(name):
                    function()
        return
    torch.cuda.cudart().cudaProfilerStart()
    for name, function in work.items():
        torch.cuda.nvtx.range_push(name)
        function()
        torch.cuda.synchronize()
        torch.cuda.nvtx.range_pop()
    torch.cuda.cudart().cudaProfilerStop()


if __name__ == "__main__":
    main()
