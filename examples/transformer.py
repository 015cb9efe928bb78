# SPDX-License-Identifier: Apache-2.0
"""Train a small causal language model: embedding, nn.TransformerEncoder with a mask and dropout, AdamW.

    pyprof run examples/transformer.py          3 steps, the last is recorded
    pyprof run --steps 10:15 examples/transformer.py 20

Look at: scaled_dot_product_attention inside layers.0.self_attn, layers.1.self_attn; the matrix products of the
feed-forward part; the rows of the optimizer, which belong to no module.
"""

import sys

import torch
import torch.nn.functional as F
from torch import nn

import pyprof

pyprof.init()

VOCABULARY, LENGTH, WIDTH = 1000, 64, 128


class LanguageModel(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed = nn.Embedding(VOCABULARY, WIDTH)
        self.position = nn.Parameter(torch.zeros(LENGTH, WIDTH))
        layer = nn.TransformerEncoderLayer(WIDTH, nhead=4, dim_feedforward=4 * WIDTH, dropout=0.1, batch_first=True)
        self.encoder = nn.TransformerEncoder(layer, num_layers=2)
        self.head = nn.Linear(WIDTH, VOCABULARY)
        self.register_buffer("mask", nn.Transformer.generate_square_subsequent_mask(LENGTH))

    def forward(self, tokens):
        x = self.embed(tokens) + self.position
        return self.head(self.encoder(x, mask=self.mask))


def main(steps=3):
    torch.manual_seed(0)
    device = "cuda" if torch.cuda.is_available() else "cpu"
    model = LanguageModel().to(device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    tokens = torch.randint(VOCABULARY, (8, LENGTH + 1), device=device)

    with torch.autograd.profiler.emit_nvtx():
        for step in range(steps):
            if step == steps - 1:
                torch.cuda.profiler.start()
            logits = model(tokens[:, :-1])
            loss = F.cross_entropy(logits.flatten(0, 1), tokens[:, 1:].flatten())
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
    torch.cuda.profiler.stop()
    print(f"transformer on {device}: loss {loss.item():.4f}")


if __name__ == "__main__":
    main(*map(int, sys.argv[1:2]))
