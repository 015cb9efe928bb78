# SPDX-License-Identifier: Apache-2.0
"""Modules compiled by torch.jit, one scripted and one traced: TorchScript runs their operators, not their Python lines.

    pyprof run examples/jit.py

Look at: `linear` names the line that called the compiled module. What has no function of torch.nn.functional of
its own, like the sigmoid, has operator and shapes but no line. The backward of the scripted module is one graph.
"""

import warnings

import torch
from torch import nn

import pyprof

warnings.filterwarnings("ignore", message=".*torch.jit.*", category=DeprecationWarning)
pyprof.init()


class Gate(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.value, self.gate = nn.Linear(width, width), nn.Linear(width, width)

    def forward(self, x):
        return self.value(x) * torch.sigmoid(self.gate(x))


torch.manual_seed(0)
device = "cuda" if torch.cuda.is_available() else "cpu"
x = torch.randn(32, 128, device=device)
scripted = torch.jit.script(Gate(128).to(device))
traced = torch.jit.trace(Gate(128).to(device), x)

for _ in range(3):  # the first calls of a compiled module optimise it
    traced(scripted(x)).sum().backward()

with torch.autograd.profiler.emit_nvtx():
    torch.cuda.profiler.start()
    y = scripted(x)
    z = traced(y)
    z.sum().backward()
    torch.cuda.profiler.stop()

print(f"jit on {device}: {tuple(z.shape)}")
