# SPDX-License-Identifier: Apache-2.0
"""Train a classifier of pictures that is slow for three reasons. docs/guide.md finds them one by one; fast.py has none.

    pyprof run examples/slow.py

Look at: the finding, which names the line of the data set that the loop waits for; the line of `lstm_cell`.
"""

import sys
from pathlib import Path

import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import DataLoader, Dataset

FULL, SIZE, CLASSES, WIDTH, BATCH, BATCHES = 160, 28, 10, 32, 64, 16


class Pictures(Dataset):
    """Pictures of 160 x 160 pixels, shrunk to 28 x 28, and their classes."""

    def __init__(self, count):
        random = torch.Generator().manual_seed(0)
        self.pictures = torch.randint(256, (count, 1, FULL, FULL), dtype=torch.uint8, generator=random)
        self.labels = torch.randint(CLASSES, (count,), generator=random)

    def __len__(self):
        return len(self.labels)

    def __getitem__(self, index):
        picture = self.pictures[index : index + 1].float() / 255
        small = F.interpolate(picture, SIZE, mode="bicubic", antialias=True)
        return small[0, 0], self.labels[index]


class Classifier(nn.Module):
    """A recurrent network that reads a picture row by row."""

    def __init__(self):
        super().__init__()
        self.cell = nn.LSTMCell(SIZE, WIDTH)
        self.head = nn.Linear(WIDTH, CLASSES)

    def forward(self, x):
        state = None
        for row in x.unbind(1):
            state = self.cell(row, state)
        return self.head(state[0])


def main(batches=BATCHES):
    torch.manual_seed(0)
    device = "cuda" if torch.cuda.is_available() else "cpu"
    model = Classifier().to(device)
    optimizer = torch.optim.Adam(model.parameters())
    loader = DataLoader(Pictures(batches * BATCH), BATCH, shuffle=True)
    right = 0
    for x, labels in loader:
        x, labels = x.to(device), labels.to(device)
        scores = model(x)
        loss = F.cross_entropy(scores, labels)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        for score, label in zip(scores, labels, strict=True):
            right += int(score.argmax() == label)
    print(f"{Path(__file__).name} on {device}: loss {loss.item():.4f}, {right} of {len(loader.dataset)} right")


if __name__ == "__main__":
    main(*map(int, sys.argv[1:2]))
