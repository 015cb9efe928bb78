# SPDX-License-Identifier: Apache-2.0
"""A small training program that does a bit of everything, the same every time; recorded by tests in several ways."""

from __future__ import annotations

import threading
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.profiler import record_function
from torch.utils.checkpoint import checkpoint
from torch.utils.data import DataLoader


class Square(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        ctx.save_for_backward(x)
        return x * x

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> Tensor:
        (x,) = ctx.saved_tensors
        return 2 * x * gradient


class Block(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.up, self.down = nn.Linear(6, 12), nn.Linear(12, 6)

    def forward(self, x: Tensor) -> Tensor:
        y: Tensor = self.down(torch.tanh(self.up(x)))
        return y


class Squaring(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        with record_function("square"):
            y: Tensor = Square.apply(torch.sigmoid(x))
        return y


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first, self.images = nn.Linear(5, 6), nn.Conv2d(1, 2, 2, padding=1, stride=2)
        self.again, self.old, self.last = Block(), Block(), nn.Linear(6, 3)
        self.power, self.twice = Squaring(), Squaring()

    def forward(self, x: Tensor) -> Tensor:
        y = F.relu(self.first(x))
        y = y + self.images(y.view(1, 1, 2, 6)).flatten(1)[:, :6]
        y = checkpoint(self.again, y, use_reentrant=False)
        y = checkpoint(self.old, y, use_reentrant=True)
        y = checkpoint(self.power, y, use_reentrant=False)
        y = checkpoint(self.twice, y, use_reentrant=True)
        z: Tensor = self.last(torch.cat([y, y.t().contiguous().t()])[:2])
        return z


class Program:
    """One instance trains two steps each time it is called."""

    def __init__(self) -> None:
        torch.manual_seed(0)
        self.net = Net()
        self.optimizer = torch.optim.SGD(self.net.parameters(), lr=0.1, momentum=0.9)
        self.loader = DataLoader(list(torch.randn(4, 5).split(1)), batch_size=2)

    def __call__(self) -> None:
        for batch in self.loader:
            self.optimizer.zero_grad()
            loss = self.net(batch.squeeze(1)).mean()
            loss.backward()
            self.optimizer.step()
        weight = torch.ones(3, requires_grad=True)
        (slope,) = torch.autograd.grad((weight**3).sum(), weight, create_graph=True)
        slope.sum().backward()
        made = (weight * 2).sum()
        thread = threading.Thread(target=self.beside, args=(made,))
        thread.start()
        thread.join()

    def beside(self, made: Tensor) -> None:
        """On a thread of its own: a forward and its backward, and the backward of somebody else's forward."""
        mine = torch.ones(3, requires_grad=True)
        (mine + 1).sum().backward()
        made.backward()  # type: ignore[no-untyped-call]
