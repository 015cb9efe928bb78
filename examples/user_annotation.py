# SPDX-License-Identifier: Apache-2.0
"""Name parts of a model yourself: pyprof.annotate, torch.cuda.nvtx and record_function.

    pyprof run examples/user_annotation.py

Look at: the column `layer`. Names that begin with "layer:" nest and are joined by ":", so the attention of the
first block is "block0:attention"; rows of the backward show the names of their forward.
"""

import torch
from torch import nn

import pyprof

pyprof.init()


class Block(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.attention = nn.MultiheadAttention(width, 4, batch_first=True)
        self.expand, self.project = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x):
        with pyprof.annotate("layer:attention"):
            x = x + self.attention(x, x, x, need_weights=False)[0]
        return x + self.feed_forward(x)

    @pyprof.annotate("layer:feed_forward")
    def feed_forward(self, x):
        return self.project(torch.relu(self.expand(x)))


def main():
    torch.manual_seed(0)
    device = "cuda" if torch.cuda.is_available() else "cpu"
    blocks = nn.ModuleList(Block(64) for _ in range(2)).to(device)
    x = torch.randn(4, 32, 64, device=device)

    with torch.autograd.profiler.emit_nvtx():
        for index, block in enumerate(blocks):
            with torch.profiler.record_function(f"layer:block{index}"):
                x = block(x)
        torch.cuda.nvtx.range_push("layer:loss")  # after init() also where torch has no CUDA
        loss = x.square().mean()
        torch.cuda.nvtx.range_pop()
        loss.backward()
    print(f"user_annotation on {device}: loss {loss.item():.4f}")


if __name__ == "__main__":
    main()
