# SPDX-License-Identifier: Apache-2.0
"""Operators that torch does not know: an autograd.Function and a function of your own, named with pyprof.wrap.

    pyprof run examples/custom_function.py

Look at: the rows below `fused_gelu`, the name of the operator that launched them; the backward kernels, which run
in the `backward` that you wrote and find their way back to the line that called the forward.
"""

import sys

import torch

import pyprof


class Square(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x * x

    @staticmethod
    def backward(ctx, grad):
        (x,) = ctx.saved_tensors
        return 2 * x * grad


def fused_gelu(x, scale):
    """Stands for a function of your own extension: everything in it counts as one operator."""
    return x * torch.sigmoid(scale * x)


pyprof.init()
pyprof.wrap(sys.modules[__name__], "fused_gelu")

device = "cuda" if torch.cuda.is_available() else "cpu"
x = torch.randn(256, 512, device=device, requires_grad=True)

with torch.autograd.profiler.emit_nvtx():
    y = fused_gelu(x, 1.702)
    z = Square.apply(y)
    z.mean().backward()

print(f"custom_function on {device}: gradient {tuple(x.grad.shape)}")
