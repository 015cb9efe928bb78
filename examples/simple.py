# SPDX-License-Identifier: Apache-2.0
"""The smallest program: one linear layer, one relu, forward and backward.

    pyprof run examples/simple.py

Look at: relu(x Wᵀ + b) is one matrix product forward and two backward (gradient of the input, gradient of the
weight); every backward row carries the line and the shapes of its forward.
"""

import torch
import torch.nn.functional as F

import pyprof

pyprof.init()
device = "cuda" if torch.cuda.is_available() else "cpu"

x = torch.randn(64, 1024, device=device, requires_grad=True)
weight = torch.randn(512, 1024, device=device, requires_grad=True)
bias = torch.zeros(512, device=device, requires_grad=True)

with torch.autograd.profiler.emit_nvtx():
    y = F.linear(x, weight, bias)
    z = F.relu(y)
    z.sum().backward()

print(f"simple on {device}: {tuple(z.shape)}")
