# SPDX-License-Identifier: Apache-2.0
"""Train LeNet-5 and record one step, in the way of the original PyProf: init, emit_nvtx, start, stop.

    pyprof run examples/lenet.py

Look at: each convolution and linear layer in both directions; the backward of conv1 has no gradient of its input,
because nothing needs one. Prints the loss before and after.
"""

import torch
import torch.cuda.profiler as profiler
import torch.nn.functional as F
from torch import nn

import pyprof

pyprof.init()


class LeNet5(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv1 = nn.Conv2d(1, 6, 5)
        self.conv2 = nn.Conv2d(6, 16, 5)
        self.fc1 = nn.Linear(16 * 5 * 5, 120)
        self.fc2 = nn.Linear(120, 84)
        self.fc3 = nn.Linear(84, 10)

    def forward(self, x):
        x = F.max_pool2d(F.relu(self.conv1(x)), 2)
        x = F.max_pool2d(F.relu(self.conv2(x)), 2)
        x = torch.flatten(x, 1)
        x = F.relu(self.fc1(x))
        x = F.relu(self.fc2(x))
        return self.fc3(x)


def main(steps=4, step_to_record=3):
    torch.manual_seed(0)
    device = "cuda" if torch.cuda.is_available() else "cpu"
    net = LeNet5().to(device)
    criterion = nn.CrossEntropyLoss()
    optimizer = torch.optim.SGD(net.parameters(), lr=0.01, momentum=0.9)
    images = torch.randn(32, 1, 32, 32, device=device)
    labels = torch.randint(10, (32,), device=device)

    losses = []
    with torch.autograd.profiler.emit_nvtx():
        for step in range(steps):
            if step == step_to_record:
                profiler.start()
            output = net(images)
            loss = criterion(output, labels)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            losses.append(loss.detach())
            if step == step_to_record:
                profiler.stop()
    print(f"lenet on {device}: loss {losses[0]:.4f} -> {losses[-1]:.4f}")


if __name__ == "__main__":
    main()
