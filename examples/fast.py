# SPDX-License-Identifier: Apache-2.0
"""The training of slow.py, to the same loss, without what makes that one slow. docs/guide.md leads from it to this.

    pyprof run examples/fast.py
    pyprof diff slow.sqlite fast.sqlite

Look at: pictures are shrunk once, rows run in one call, and so does whatever a batch needs.
"""

import sys
from pathlib import Path

import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import BatchSampler, DataLoader, Dataset, RandomSampler

FULL, SIZE, CLASSES, WIDTH, BATCH, BATCHES = 160, 28, 10, 32, 64, 16


class Pictures(Dataset):
    """Pictures of 160 x 160 pixels, shrunk to 28 x 28, and their classes."""

    def __init__(self, count):
        random = torch.Generator().manual_seed(0)
        pictures = torch.randint(256, (count, 1, FULL, FULL), dtype=torch.uint8, generator=random)
        self.small = F.interpolate(pictures.float() / 255, SIZE, mode="bicubic", antialias=True)[:, 0]
        self.labels = torch.randint(CLASSES, (count,), generator=random)

    def __len__(self):
        return len(self.labels)

    def __getitem__(self, index):
        return self.small[index], self.labels[index]


class Classifier(nn.Module):
    """A recurrent network that reads a picture row by row."""

    def __init__(self):
        super().__init__()
        self.rows = nn.LSTM(SIZE, WIDTH, batch_first=True)
        self.head = nn.Linear(WIDTH, CLASSES)

    def forward(self, x):
        outputs, _ = self.rows(x)
        return self.head(outputs[:, -1])


def main(batches=BATCHES):
    torch.manual_seed(0)
    device = "cuda" if torch.cuda.is_available() else "cpu"
    model = Classifier().to(device)
    optimizer = torch.optim.Adam(model.parameters())
    pictures = Pictures(batches * BATCH)
    shuffled = BatchSampler(RandomSampler(pictures), BATCH, drop_last=False)
    loader = DataLoader(pictures, batch_size=None, sampler=shuffled)
    right = 0
    for x, labels in loader:
        x, labels = x.to(device), labels.to(device)
        scores = model(x)
        loss = F.cross_entropy(scores, labels)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        right += int((scores.argmax(1) == labels).sum())
    print(f"{Path(__file__).name} on {device}: loss {loss.item():.4f}, {right} of {len(loader.dataset)} right")


if __name__ == "__main__":
    main(*map(int, sys.argv[1:2]))
