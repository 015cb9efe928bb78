# SPDX-License-Identifier: Apache-2.0
"""Programs to record on a GPU. Each function builds a model and returns a step; a step without a GPU is the same work
on the CPU, to test the program."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import nn

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
Step = Callable[[], Any]
PROGRAMS: dict[str, Callable[[], Step]] = {}


def program(build: Callable[[], Step]) -> Callable[[], Step]:
    PROGRAMS[build.__name__] = build
    return build


class Block(nn.Module):
    """A pre-norm transformer block with causal attention through `scaled_dot_product_attention`."""

    def __init__(self, width: int, heads: int):
        super().__init__()
        self.heads = heads
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        batch, length, width = x.shape
        q, k, v = self.qkv(self.norm1(x)).view(batch, length, 3, self.heads, -1).permute(2, 0, 3, 1, 4)
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.out(y.transpose(1, 2).reshape(batch, length, width))
        return x + self.down(F.gelu(self.up(self.norm2(x)), approximate="tanh"))


class Language(nn.Module):
    def __init__(self, vocabulary: int = 8192, width: int = 512, heads: int = 8, layers: int = 4, length: int = 512):
        super().__init__()
        self.tokens, self.places = nn.Embedding(vocabulary, width), nn.Embedding(length, width)
        self.blocks = nn.ModuleList(Block(width, heads) for _ in range(layers))
        self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, vocabulary, bias=False)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        x = self.tokens(tokens) + self.places.weight[: tokens.shape[1]]
        for block in self.blocks:
            x = block(x)
        return self.head(self.norm(x))


def _training(model: nn.Module, optimizer: torch.optim.Optimizer, batch: int, length: int, vocabulary: int) -> Step:
    tokens = torch.randint(vocabulary, (batch, length + 1), device=DEVICE)

    def step() -> None:
        optimizer.zero_grad()
        with torch.autocast(DEVICE, torch.bfloat16):
            logits = model(tokens[:, :-1])
            loss = F.cross_entropy(logits.flatten(0, 1), tokens[:, 1:].flatten())
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()

    return step


@program
def transformer_bf16() -> Step:
    """Training of a language model in bf16 autocast, gradients clipped, fused AdamW."""
    model = Language().to(DEVICE)
    return _training(model, torch.optim.AdamW(model.parameters(), fused=True), 4, 512, 8192)


@program
def compiled_bf16() -> Step:
    """The same under torch.compile, forward and backward by Inductor."""
    model = Language(layers=2).to(DEVICE)
    return _training(torch.compile(model), torch.optim.AdamW(model.parameters(), fused=True), 4, 512, 8192)


@program
def resnet_channels_last() -> Step:
    """Training of a small residual network in fp16 with a GradScaler, channels_last."""

    class Unit(nn.Module):
        def __init__(self, inside: int, outside: int, stride: int):
            super().__init__()
            self.conv1, self.bn1 = (
                nn.Conv2d(inside, outside, 3, stride, 1, bias=False),
                nn.BatchNorm2d(outside),
            )
            self.conv2, self.bn2 = nn.Conv2d(outside, outside, 3, 1, 1, bias=False), nn.BatchNorm2d(outside)
            self.skip = nn.Conv2d(inside, outside, 1, stride, bias=False)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            y = F.relu(self.bn1(self.conv1(x)))
            return F.relu(self.bn2(self.conv2(y)) + self.skip(x))

    model = nn.Sequential(
        nn.Conv2d(3, 64, 7, 2, 3, bias=False), nn.BatchNorm2d(64), nn.ReLU(), nn.MaxPool2d(3, 2, 1),
        Unit(64, 64, 1), Unit(64, 128, 2), Unit(128, 256, 2),
        nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(256, 1000),
    ).to(DEVICE, memory_format=torch.channels_last)  # fmt: skip
    images = torch.randn(32, 3, 224, 224, device=DEVICE).to(memory_format=torch.channels_last)
    labels = torch.randint(1000, (32,), device=DEVICE)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)
    scaler = torch.amp.GradScaler(DEVICE)

    def step() -> None:
        optimizer.zero_grad()
        with torch.autocast(DEVICE, torch.float16 if DEVICE == "cuda" else torch.bfloat16):
            loss = F.cross_entropy(model(images), labels)
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()

    return step


@program
def attention() -> Step:
    """Attention, forward and backward, by each backend of `scaled_dot_product_attention`."""
    from torch.nn.attention import SDPBackend, sdpa_kernel

    q, k, v = (torch.randn(4, 16, 1024, 64, device=DEVICE, dtype=torch.bfloat16, requires_grad=True) for _ in range(3))
    backends = [SDPBackend.FLASH_ATTENTION, SDPBackend.MATH]
    if DEVICE == "cuda":
        backends += [SDPBackend.EFFICIENT_ATTENTION, SDPBackend.CUDNN_ATTENTION]

    def step() -> None:
        for backend in backends:
            for causal in (False, True):
                with (
                    torch.autograd.profiler.record_function(f"{backend.name} causal={causal}"),
                    sdpa_kernel(backend),
                ):
                    F.scaled_dot_product_attention(q, k, v, is_causal=causal).sum().backward()

    return step


@program
def products() -> Step:
    """Matrix products in every type of number, and batched ones."""
    cuda = DEVICE == "cuda"
    size = 2048 if cuda else 64
    single = [torch.randn(size, size, device=DEVICE) for _ in range(2)]
    halves = {dtype: [x.to(dtype) for x in single] for dtype in (torch.float16, torch.bfloat16, torch.float64)}
    batch = [torch.randn(16, 256, 256, device=DEVICE, dtype=torch.bfloat16) for _ in range(2)]
    bytes_ = [torch.randint(-8, 8, (size, size), device=DEVICE, dtype=torch.int8) for _ in range(2)]
    eighths = [x.to(torch.float8_e4m3fn) for x in single] if cuda else []
    one = torch.ones((), device=DEVICE)

    def step() -> None:
        torch.mm(*single)
        torch.backends.cuda.matmul.allow_tf32 = True
        torch.mm(*single)
        torch.backends.cuda.matmul.allow_tf32 = False
        for pair in halves.values():
            torch.mm(*pair)
        torch.bmm(*batch)
        torch.baddbmm(batch[0], *batch)
        torch._int_mm(*bytes_)
        if eighths:
            torch._scaled_mm(eighths[0], eighths[1].t(), one, one, out_dtype=torch.bfloat16)
        torch.mv(single[0], single[1][0])
        torch.einsum("bij,bkj->bik", *batch)

    return step


@program
def graph_replay() -> Step:
    """Inference from a CUDA graph, which is captured in the first step."""
    model = Language(layers=2).to(DEVICE, torch.bfloat16).eval()
    tokens = torch.randint(8192, (4, 128), device=DEVICE)
    if DEVICE == "cpu":
        return lambda: model(tokens)
    graph: torch.cuda.CUDAGraph | None = None

    def step() -> None:
        nonlocal graph
        with torch.no_grad():
            if graph is None:
                side = torch.cuda.Stream()
                side.wait_stream(torch.cuda.current_stream())
                with torch.cuda.stream(side):
                    for _ in range(3):
                        model(tokens)
                torch.cuda.current_stream().wait_stream(side)
                graph = torch.cuda.CUDAGraph()
                with torch.cuda.graph(graph):
                    model(tokens)
            tokens.random_(8192)
            graph.replay()

    return step


@program
def two_streams() -> Step:
    """Work on two streams, with events between them and copies to and from pinned memory."""
    cuda = DEVICE == "cuda"
    x = torch.randn(2048, 2048, device=DEVICE)
    host = torch.randn(2048, 2048)
    host = host.pin_memory() if cuda else host
    side = torch.cuda.Stream() if cuda else None

    def step() -> None:
        if side is None:
            torch.mm(x, host)
            return
        ready = torch.cuda.Event()
        with torch.cuda.stream(side):
            y = host.to(DEVICE, non_blocking=True)
            z = torch.relu(y)
            ready.record()
        a = x @ x
        torch.cuda.current_stream().wait_event(ready)
        b = a + z
        z.record_stream(torch.cuda.current_stream())
        host.copy_(b, non_blocking=True)
        torch.cuda.current_stream().synchronize()
        float(b[0, 0])
        b.sum().item()

    return step


@program
def loader_workers() -> Step:
    """Training from a DataLoader with two workers and pinned memory; the loss is read at every step."""
    data = torch.utils.data.TensorDataset(torch.randn(4096, 3, 32, 32), torch.randint(10, (4096,)))
    loader = torch.utils.data.DataLoader(data, 64, num_workers=2, pin_memory=DEVICE == "cuda", persistent_workers=True)
    model = nn.Sequential(nn.Conv2d(3, 32, 3), nn.ReLU(), nn.Flatten(), nn.Linear(32 * 30 * 30, 10)).to(DEVICE)
    optimizer = torch.optim.Adam(model.parameters())
    batches = iter(loader)

    def step() -> None:
        images, labels = (x.to(DEVICE, non_blocking=True) for x in next(batches))
        optimizer.zero_grad(set_to_none=True)
        loss = F.cross_entropy(model(images), labels)
        loss.backward()
        optimizer.step()
        loss.item()

    return step


@program
def operators() -> Step:
    """One call each of operators of many kinds, forward and backward."""
    x = torch.randn(64, 512, 512, device=DEVICE, requires_grad=True)
    images = torch.randn(16, 64, 56, 56, device=DEVICE, requires_grad=True)
    weight, bias = torch.randn(512, device=DEVICE), torch.randn(512, device=DEVICE)
    table = torch.randn(10000, 256, device=DEVICE, requires_grad=True)
    index = torch.randint(10000, (32, 512), device=DEVICE)
    lstm = nn.LSTM(128, 256, batch_first=True).to(DEVICE)
    sequence = torch.randn(16, 64, 128, device=DEVICE)

    def step() -> None:
        F.softmax(x, -1).sum().backward()
        F.layer_norm(x, (512,), weight, bias).sum().backward()
        F.rms_norm(x, (512,), weight).sum().backward()
        F.gelu(x).sum().backward()
        F.dropout(x, 0.1).sum().backward()
        (x * 2 + 1).sum().backward()
        F.conv2d(images, torch.ones(64, 64, 3, 3, device=DEVICE), padding=1).sum().backward()
        F.conv2d(images, torch.ones(64, 1, 3, 3, device=DEVICE), groups=64).sum().backward()
        F.max_pool2d(images, 2).sum().backward()
        F.avg_pool2d(images, 3, 2, 1).sum().backward()
        F.batch_norm(images, None, None, training=True).sum().backward()
        F.group_norm(images, 8).sum().backward()
        F.interpolate(images, scale_factor=2, mode="bilinear").sum().backward()
        F.embedding(index, table).sum().backward()
        F.cross_entropy(x.flatten(0, 1), index.flatten()[: 64 * 512].repeat(2) % 512).backward()
        lstm(sequence)[0].sum().backward()
        torch.cat([x, x], 1), x.transpose(1, 2).contiguous(), torch.sort(weight), torch.topk(weight, 10)
        x.detach().cumsum(-1), x.detach().amax(1), torch.where(x > 0, x, bias), x.detach().std(-1)
        weight[weight > 0], torch.nonzero(weight), torch.unique(index), torch.fft.rfft(sequence)
        (
            torch.linalg.cholesky(torch.eye(128, device=DEVICE)),
            torch.linalg.solve(torch.eye(64, device=DEVICE), bias[:64]),
        )
        torch.index_select(table, 0, index[0]), table.detach().scatter_add(0, index[:, :256], table.detach())
        torch.cdist(table[:64], table[:64]), torch.bincount(index.flatten()), torch.histc(weight)

    return step


@program
def generation() -> Step:
    """Eager decoding with a cache, one token a step: launches cost more than kernels."""
    model = (
        Language(layers=4, width=256, heads=4).to(DEVICE, torch.float16 if DEVICE == "cuda" else torch.bfloat16).eval()
    )
    tokens = torch.randint(8192, (1, 16), device=DEVICE)

    def step() -> None:
        nonlocal tokens
        with torch.no_grad():
            for _ in range(4):
                token = model(tokens)[:, -1].argmax(-1, keepdim=True)
                tokens = torch.cat([tokens, token], 1)[:, -16:]
                token.item()

    return step
