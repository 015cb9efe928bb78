# SPDX-License-Identifier: Apache-2.0
"""Well-known models in plain torch, from the tables of their papers."""

from __future__ import annotations

from collections.abc import Callable

import torch
import torch.nn as nn
import torch.nn.functional as F
from torch import Tensor


def conv(
    c: int, k: int, r: int = 1, stride: int = 1, groups: int = 1, act: Callable[[], nn.Module] | None = None
) -> nn.Sequential:
    """Convolution without bias, batch norm, activation."""
    layers = [nn.Conv2d(c, k, r, stride, r // 2, groups=groups, bias=False), nn.BatchNorm2d(k)]
    return nn.Sequential(*layers, *([act()] if act else []))


class Bottleneck(nn.Module):
    """ResNet's block of three convolutions; the stride is in the 3×3 one (v1.5)."""

    def __init__(self, c: int, width: int, stride: int):
        super().__init__()
        self.body = nn.Sequential(
            conv(c, width, act=nn.ReLU), conv(width, width, 3, stride, act=nn.ReLU), conv(width, 4 * width)
        )
        self.shortcut = conv(c, 4 * width, 1, stride) if stride > 1 or c != 4 * width else nn.Identity()

    def forward(self, x: Tensor) -> Tensor:
        return F.relu(self.body(x) + self.shortcut(x))


def resnet50() -> nn.Module:
    """He et al., Deep Residual Learning (arXiv 1512.03385), table 1, with the stride of v1.5."""
    layers: list[nn.Module] = [conv(3, 64, 7, 2, act=nn.ReLU), nn.MaxPool2d(3, 2, 1)]
    c = 64
    for width, blocks, stride in ((64, 3, 1), (128, 4, 2), (256, 6, 2), (512, 3, 2)):
        for i in range(blocks):
            layers.append(Bottleneck(c, width, stride if i == 0 else 1))
            c = 4 * width
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(c, 1000))


def vgg16() -> nn.Module:
    """Simonyan and Zisserman (arXiv 1409.1556), table 1, configuration D."""
    layers: list[nn.Module] = []
    c = 3
    for widths in ((64, 64), (128, 128), (256, 256, 256), (512, 512, 512), (512, 512, 512)):
        for k in widths:
            layers += [nn.Conv2d(c, k, 3, padding=1), nn.ReLU()]
            c = k
        layers.append(nn.MaxPool2d(2))
    head = [
        nn.Linear(512 * 7 * 7, 4096),
        nn.ReLU(),
        nn.Dropout(),
        nn.Linear(4096, 4096),
        nn.ReLU(),
        nn.Dropout(),
    ]
    return nn.Sequential(*layers, nn.Flatten(), *head, nn.Linear(4096, 1000))


class Squeeze(nn.Module):
    """Squeeze and excitation."""

    def __init__(self, c: int, squeezed: int):
        super().__init__()
        self.down, self.up = nn.Conv2d(c, squeezed, 1), nn.Conv2d(squeezed, c, 1)

    def forward(self, x: Tensor) -> Tensor:
        return x * torch.sigmoid(self.up(F.silu(self.down(F.adaptive_avg_pool2d(x, 1)))))


class Inverted(nn.Module):
    """The inverted residual of MobileNetV2, with EfficientNet's squeeze where it is asked for."""

    def __init__(self, c: int, k: int, r: int, stride: int, t: int, act: Callable[[], nn.Module], squeeze: bool):
        super().__init__()
        wide = c * t
        layers = [conv(c, wide, act=act)] if t > 1 else []
        layers.append(conv(wide, wide, r, stride, wide, act))
        if squeeze:
            layers.append(Squeeze(wide, max(1, c // 4)))
        self.body = nn.Sequential(*layers, conv(wide, k))
        self.adds = stride == 1 and c == k

    def forward(self, x: Tensor) -> Tensor:
        return x + self.body(x) if self.adds else self.body(x)


def _inverted(rows: tuple[tuple[int, ...], ...], act: Callable[[], nn.Module], squeeze: bool) -> nn.Module:
    """Rows: expansion, channels, repeats, stride, kernel."""
    layers = [conv(3, 32, 3, 2, act=act)]
    c = 32
    for t, k, n, stride, r in rows:
        for i in range(n):
            layers.append(Inverted(c, k, r, stride if i == 0 else 1, t, act, squeeze))
            c = k
    return nn.Sequential(
        *layers, conv(c, 1280, act=act), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Dropout(0.2),
        nn.Linear(1280, 1000),
    )  # fmt: skip


def mobilenet_v2() -> nn.Module:
    """Sandler et al. (arXiv 1801.04381), table 2."""
    rows = (
        (1, 16, 1, 1),
        (6, 24, 2, 2),
        (6, 32, 3, 2),
        (6, 64, 4, 2),
        (6, 96, 3, 1),
        (6, 160, 3, 2),
        (6, 320, 1, 1),
    )
    return _inverted(tuple((*row, 3) for row in rows), nn.ReLU6, squeeze=False)


def efficientnet_b0() -> nn.Module:
    """Tan and Le (arXiv 1905.11946), table 1."""
    rows = (
        (1, 16, 1, 1, 3), (6, 24, 2, 2, 3), (6, 40, 2, 2, 5), (6, 80, 3, 2, 3), (6, 112, 3, 1, 5), (6, 192, 4, 2, 5),
        (6, 320, 1, 1, 3),
    )  # fmt: skip
    return _inverted(rows, nn.SiLU, squeeze=True)


class ViT(nn.Module):
    """Vision Transformer B/16, Dosovitskiy et al. (arXiv 2010.11929), table 1."""

    def __init__(self) -> None:
        super().__init__()
        self.patches = nn.Conv2d(3, 768, 16, 16)
        self.token = nn.Parameter(torch.zeros(1, 1, 768))
        self.positions = nn.Parameter(torch.zeros(1, 197, 768))
        layer = nn.TransformerEncoderLayer(768, 12, 3072, 0.0, F.gelu, 1e-6, batch_first=True, norm_first=True)
        self.encoder = nn.TransformerEncoder(layer, 12, nn.LayerNorm(768), enable_nested_tensor=False)
        self.head = nn.Linear(768, 1000)

    def forward(self, x: Tensor) -> Tensor:
        x = self.patches(x).flatten(2).transpose(1, 2)
        x = torch.cat((self.token.expand(len(x), -1, -1), x), 1) + self.positions
        return self.head(self.encoder(x)[:, 0])


class Bert(nn.Module):
    """BERT base with its pooler, Devlin et al. (arXiv 1810.04805), section 3."""

    def __init__(self) -> None:
        super().__init__()
        self.words, self.positions, self.types = (
            nn.Embedding(30522, 768),
            nn.Embedding(512, 768),
            nn.Embedding(2, 768),
        )
        self.norm = nn.LayerNorm(768)
        layer = nn.TransformerEncoderLayer(768, 12, 3072, 0.1, F.gelu, batch_first=True)
        self.encoder = nn.TransformerEncoder(layer, 12, enable_nested_tensor=False)
        self.pooler = nn.Linear(768, 768)

    def forward(self, words: Tensor) -> Tensor:
        positions = torch.arange(words.shape[1], device=words.device)
        x = self.words(words) + self.positions(positions) + self.types(torch.zeros_like(words))
        return torch.tanh(self.pooler(self.encoder(self.norm(x))[:, 0]))


class GPTBlock(nn.Module):
    """A layer of GPT-2."""

    def __init__(self, d: int, heads: int, bias: bool):
        super().__init__()
        self.heads = heads
        self.ln_1, self.ln_2 = nn.LayerNorm(d, bias=bias), nn.LayerNorm(d, bias=bias)
        self.kqv, self.proj = nn.Linear(d, 3 * d, bias=bias), nn.Linear(d, d, bias=bias)
        self.ffw1, self.ffw2 = nn.Linear(d, 4 * d, bias=bias), nn.Linear(4 * d, d, bias=bias)

    def forward(self, x: Tensor) -> Tensor:
        b, s, d = x.shape
        parts = self.kqv(self.ln_1(x)).split(d, 2)
        q, k, v = (part.view(b, s, self.heads, d // self.heads).transpose(1, 2) for part in parts)
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2).reshape(b, s, d)
        x = x + self.proj(y)
        return x + self.ffw2(F.gelu(self.ffw1(self.ln_2(x)), approximate="tanh"))


class GPT2(nn.Module):
    """GPT-2 small, Radford et al. 2019, table 2; the last layer has the weight of the embedding."""

    def __init__(self, bias: bool = True):
        super().__init__()
        self.words, self.positions = nn.Embedding(50257, 768), nn.Embedding(1024, 768)
        self.blocks = nn.ModuleList(GPTBlock(768, 12, bias) for _ in range(12))
        self.norm = nn.LayerNorm(768, bias=bias)
        self.dense = nn.Linear(768, 50257, bias=False)
        self.dense.weight = self.words.weight

    def forward(self, words: Tensor) -> Tensor:
        x = self.words(words) + self.positions(torch.arange(words.shape[1], device=words.device))
        for block in self.blocks:
            x = block(x)
        return self.dense(self.norm(x))


class LlamaBlock(nn.Module):
    """A layer of Llama: rotary positions, gated feed-forward."""

    def __init__(self, d: int, heads: int, inner: int):
        super().__init__()
        self.heads = heads
        self.norm1, self.norm2 = nn.RMSNorm(d), nn.RMSNorm(d)
        self.q, self.k, self.v, self.o = (nn.Linear(d, d, bias=False) for _ in range(4))
        self.gate, self.up, self.down = (
            nn.Linear(*sizes, bias=False) for sizes in ((d, inner), (d, inner), (inner, d))
        )

    def forward(self, x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
        b, s, d = x.shape
        y = self.norm1(x)
        q, k, v = (p(y).view(b, s, self.heads, -1).transpose(1, 2) for p in (self.q, self.k, self.v))
        q, k = (t * cos + torch.cat((-t[..., 64:], t[..., :64]), -1) * sin for t in (q, k))
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2).reshape(b, s, d)
        x = x + self.o(y)
        y = self.norm2(x)
        return x + self.down(F.silu(self.gate(y)) * self.up(y))


class Llama2(nn.Module):
    """Llama 2 7B, Touvron et al. (arXiv 2307.09288); sizes from LLaMA (arXiv 2302.13971), table 2."""

    def __init__(self) -> None:
        super().__init__()
        self.words = nn.Embedding(32000, 4096)
        self.blocks = nn.ModuleList(LlamaBlock(4096, 32, 11008) for _ in range(32))
        self.norm, self.head = nn.RMSNorm(4096), nn.Linear(4096, 32000, bias=False)

    def forward(self, words: Tensor) -> Tensor:
        angles = torch.empty(words.shape[1], 128, device=words.device)
        cos, sin = angles.cos(), angles.sin()
        x = self.words(words)
        for block in self.blocks:
            x = block(x, cos, sin)
        return self.head(self.norm(x))
