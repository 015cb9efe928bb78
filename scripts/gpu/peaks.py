#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Measured peaks of a GPU: rates of dense products by type of number, bandwidth of copies. Prints one line of JSON."""

from __future__ import annotations

import json
from collections.abc import Callable
from statistics import median
from typing import Any

import torch


def seconds(function: Callable[[], Any], times: int) -> float:
    """Median time of one call, by events of the device."""
    for _ in range(3):
        function()
    spent = []
    for _ in range(5):
        begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        begin.record()
        for _ in range(times):
            function()
        end.record()
        end.synchronize()
        spent.append(begin.elapsed_time(end) / 1e3 / times)
    return median(spent)


def main() -> None:
    n = 8192
    x, y = (torch.randn(n, n, device="cuda") for _ in range(2))
    out: dict[str, float] = {}
    for dtype in (torch.bfloat16, torch.float16):
        a, b = x.to(dtype), y.to(dtype)
        out[str(dtype)] = 2 * n**3 / seconds(lambda a=a, b=b: a @ b, 10) / 1e12
    out["float32"] = 2 * n**3 / seconds(lambda: x @ y, 2) / 1e12
    torch.backends.cuda.matmul.allow_tf32 = True
    out["tf32"] = 2 * n**3 / seconds(lambda: x @ y, 5) / 1e12
    m = 4096
    d = torch.randn(m, m, device="cuda", dtype=torch.float64)
    out["float64"] = 2 * m**3 / seconds(lambda: d @ d, 5) / 1e12
    i = torch.randint(-8, 8, (n, n), device="cuda", dtype=torch.int8)
    out["int8"] = 2 * n**3 / seconds(lambda: torch._int_mm(i, i), 10) / 1e12
    e, one = x.to(torch.float8_e4m3fn), torch.ones((), device="cuda")
    out["fp8"] = 2 * n**3 / seconds(lambda: torch._scaled_mm(e, e.t(), one, one, out_dtype=torch.bfloat16), 10) / 1e12
    big = torch.empty(1 << 30, device="cuda")
    other = torch.empty_like(big)
    out["copy TB/s"] = 2 * 4 * big.numel() / seconds(lambda: other.copy_(big), 5) / 1e12
    out["read TB/s"] = 4 * big.numel() / seconds(lambda: big.sum(), 5) / 1e12
    host = torch.empty(1 << 28, pin_memory=True)
    part = big[: 1 << 28]
    out["to device GB/s"] = 4 * host.numel() / seconds(lambda: part.copy_(host, non_blocking=True), 3) / 1e9
    out["to host GB/s"] = 4 * host.numel() / seconds(lambda: host.copy_(part, non_blocking=True), 3) / 1e9
    print(json.dumps({"gpu": torch.cuda.get_device_name(), **{k: round(v, 3) for k, v in out.items()}}))


if __name__ == "__main__":
    main()
