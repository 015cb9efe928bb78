# SPDX-License-Identifier: Apache-2.0
"""Train ResNet-50 (He et al., arXiv:1512.03385, stride in the 3x3 convolution) with Adam; no torchvision needed.

    pyprof run examples/resnet50.py
    pyprof run examples/resnet50.py --size 224 --batch 8

Look at: where the time of a convolutional network goes, by operator and by module (layer3.2.conv2); the 1x1
convolutions, which are matrix products; batch_norm and relu, which compute little and move much.
"""

import argparse

import torch
import torch.nn.functional as F
from torch import nn

import pyprof

pyprof.init()


class Bottleneck(nn.Module):
    def __init__(self, channels, width, stride):
        super().__init__()
        self.conv1, self.bn1 = nn.Conv2d(channels, width, 1, bias=False), nn.BatchNorm2d(width)
        self.conv2 = nn.Conv2d(width, width, 3, stride, padding=1, bias=False)
        self.bn2 = nn.BatchNorm2d(width)
        self.conv3, self.bn3 = nn.Conv2d(width, 4 * width, 1, bias=False), nn.BatchNorm2d(4 * width)
        self.downsample = None
        if stride > 1 or channels != 4 * width:
            projection = nn.Conv2d(channels, 4 * width, 1, stride, bias=False)
            self.downsample = nn.Sequential(projection, nn.BatchNorm2d(4 * width))

    def forward(self, x):
        y = F.relu(self.bn1(self.conv1(x)))
        y = F.relu(self.bn2(self.conv2(y)))
        y = self.bn3(self.conv3(y))
        return F.relu(y + (x if self.downsample is None else self.downsample(x)))


def resnet50(classes=1000):
    def layer(channels, width, blocks, stride):
        rest = [Bottleneck(4 * width, width, 1) for _ in range(blocks - 1)]
        return nn.Sequential(Bottleneck(channels, width, stride), *rest)

    net = nn.Sequential()
    net.conv1, net.bn1 = nn.Conv2d(3, 64, 7, stride=2, padding=3, bias=False), nn.BatchNorm2d(64)
    net.relu, net.maxpool = nn.ReLU(), nn.MaxPool2d(3, stride=2, padding=1)
    net.layer1, net.layer2 = layer(64, 64, 3, 1), layer(256, 128, 4, 2)
    net.layer3, net.layer4 = layer(512, 256, 6, 2), layer(1024, 512, 3, 2)
    net.avgpool, net.flatten, net.fc = nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(2048, classes)
    return net


def main(size, batch, steps=2):
    torch.manual_seed(0)
    device = "cuda" if torch.cuda.is_available() else "cpu"
    net = resnet50().to(device)
    optimizer = torch.optim.Adam(net.parameters(), lr=1e-4)
    images = torch.randn(batch, 3, size, size, device=device)
    labels = torch.randint(1000, (batch,), device=device)
    with torch.autograd.profiler.emit_nvtx():
        for step in range(steps):
            if step == steps - 1:
                torch.cuda.profiler.start()
            loss = F.cross_entropy(net(images), labels)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
    torch.cuda.profiler.stop()
    print(f"resnet50 on {device}: batch {batch}, {size}x{size}, loss {loss.item():.4f}")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description="Train ResNet-50 on random images.")
    parser.add_argument("--size", type=int, default=64, help="height and width of the images (default 64)")
    parser.add_argument("--batch", type=int, default=4, help="images per step (default 4)")
    main(**vars(parser.parse_args()))
