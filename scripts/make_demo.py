#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Generate the recording that `pyprof view --demo` shows. No program ran: every time in it is computed.

    python scripts/make_demo.py [FILE]        default: pyprof/server/demo/generated_demo.pt.trace.json.gz

It is a trace as torch.profiler writes one of the training of a small language model on an A100: six steps, a data
loader without workers, attention in bfloat16 on tensor cores and a feed-forward part that was left in float32, a
backward on the thread of autograd, and an optimizer of many small kernels. A kernel takes the time of a roofline
with the figures below; the host takes a fixed time per operator. The same script writes the same bytes.
"""

from __future__ import annotations

import gzip
import json
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from math import prod
from pathlib import Path
from typing import Any

TARGET = Path(__file__).resolve().parent.parent / "pyprof/server/demo/generated_demo.pt.trace.json.gz"
STEPS, FIRST = 6, 10
BATCH, LENGTH, WIDTH, HEADS, LAYERS, VOCABULARY = 8, 512, 1024, 16, 2, 8192
TOKENS = BATCH * LENGTH
LOADING_US = 9_000
# FLOP and bytes per us of an A100 80GB SXM, and how much of them a kernel reaches.
TENSOR, PLAIN, BANDWIDTH, REACHED = 312e6, 19.5e6, 2.039e6, 0.7
PID, MAIN, ENGINE, STREAM = 4100, 4100, 4188, 7
BF16, F32 = "c10::BFloat16", "float"
SIZE = {BF16: 2, F32: 4}
DEVICE = {
    "id": 0, "name": "NVIDIA A100-SXM4-80GB", "totalGlobalMem": 85_899_345_920, "computeMajor": 8, "computeMinor": 0,
    "numSms": 108, "maxThreadsPerBlock": 1024, "maxThreadsPerMultiprocessor": 2048, "regsPerBlock": 65536,
    "warpSize": 32, "sharedMemPerBlock": 49152, "regsPerMultiprocessor": 65536, "sharedMemPerMultiprocessor": 167936,
}  # fmt: skip
ELEMENTWISE = "void at::native::vectorized_elementwise_kernel<4, at::native::{}, std::array<char*, 3ul> >"
Shape = tuple[int, ...]


class Recorder:
    """A program's threads with one clock, and the stream of its GPU."""

    def __init__(self) -> None:
        self.events: list[dict[str, Any]] = []
        self.clock, self.busy_until = 1_000.0, 0.0
        self.thread, self.ids, self.sequence = MAIN, 0, 0
        self.allocated, self.address = 0, 0x7F00_0000_0000
        self.blocks: dict[str, tuple[int, int]] = {}
        self.modules: dict[str, list[str]] = {}

    def number(self) -> int:
        self.ids += 1
        return self.ids

    def add(self, category: str, name: str, start: float, end: float, **args: Any) -> dict[str, Any]:
        made = {"ph": "X", "cat": category, "name": name, "pid": PID, "tid": self.thread, "ts": round(start, 3),
                "dur": round(end - start, 3), "args": args}  # fmt: skip
        self.events.append(made)
        return made

    @contextmanager
    def span(self, category: str, name: str, before: float = 2.0, after: float = 1.0, **args: Any) -> Iterator[None]:
        """Something that lasts as long as what happens inside it."""
        start, made = self.clock, self.add(category, name, self.clock, self.clock, **args)
        self.clock += before
        yield
        self.clock += after
        made["dur"] = round(self.clock - start, 3)

    def function(self, name: str) -> Any:
        return self.span("python_function", name, 1.0, 0.5, **{"Python id": self.number()})

    @contextmanager
    def module(self, name: str, path: str, line: str) -> Iterator[None]:
        """The call of a module: torch.profiler numbers those of a class in the order of their first calls."""
        paths = self.modules.setdefault(name, [])
        if path not in paths:
            paths.append(path)
        with self.function(f"nn.Module: {name}_{paths.index(path)}"), self.function(line):
            yield

    def operator(self, name: str, *shapes: Shape, dtype: str = F32, **args: Any) -> Any:
        told = {"Input Dims": [list(shape) for shape in shapes], "Input type": [dtype] * len(shapes)} if shapes else {}
        return self.span("cpu_op", name, **(told | {"External id": self.number()} | args))

    def launch(
        self, kernel: str, us: float, grid: int, block: int = 256, api: str = "cudaLaunchKernel", **args: Any
    ) -> None:
        """Launch a kernel or a copy; it runs when the stream has finished what came before."""
        number = self.number()
        self.add("cuda_runtime", api, self.clock, self.clock + 5, correlation=number)
        self.clock += 6
        start = max(self.clock + 3, self.busy_until)
        self.busy_until = start + us
        category = "kernel" if api == "cudaLaunchKernel" else "gpu_memcpy"
        if category == "kernel":
            args |= {"grid": [grid, 1, 1], "block": [block, 1, 1], "registers per thread": 64, "shared memory": 0,
                     "blocks per SM": grid / 108, "warps per SM": grid * block / 32 / 108,
                     "est. achieved occupancy %": min(100, 100 * grid * block // (108 * 2048))}  # fmt: skip
        made = self.add(category, kernel, start, self.busy_until, **args, device=0, stream=STREAM, correlation=number)
        made |= {"pid": 0, "tid": STREAM}

    def allocate(self, name: str, bytes_: int) -> None:
        self.address += bytes_
        self.blocks[name] = self.address, bytes_
        self._memory(self.address, bytes_)

    def free(self, name: str) -> None:
        address, bytes_ = self.blocks.pop(name)
        self._memory(address, -bytes_)

    def _memory(self, address: int, bytes_: int) -> None:
        self.allocated += bytes_
        self.clock += 0.5
        told = {"Addr": address, "Bytes": bytes_, "Device Type": 1, "Device Id": 0, "Total Allocated": self.allocated,
                "Total Reserved": 4 << 30}  # fmt: skip
        self.events.append({"ph": "i", "s": "t", "cat": "cpu_instant_event", "name": "[memory]", "pid": PID,
                            "tid": self.thread, "ts": round(self.clock, 3), "args": told})  # fmt: skip


def product(to: Recorder, m: int, n: int, k: int, dtype: str) -> None:
    """Launch the kernel of a matrix product (m, k) (k, n)."""
    fast = dtype == BF16
    name = "ampere_bf16_s16816gemm_bf16_128x128_ldg8_f2f_stages_64x3_tn" if fast else "ampere_sgemm_128x128_tn"
    us = 2 * m * n * k / (TENSOR if fast else PLAIN) / REACHED + 2
    to.launch(name, us, max(m * n // 128**2, 1))


def elementwise(to: Recorder, functor: str, elements: int, dtype: str, operands: int = 2) -> None:
    us = operands * elements * SIZE[dtype] / BANDWIDTH / REACHED + 2
    to.launch(ELEMENTWISE.format(functor), us, max(elements // 1024, 1))


class Layer:
    """An operator of the model: its forward in a module, and what autograd does for it later."""

    def __init__(self, to: Recorder, name: str, dtype: str):
        self.to, self.name, self.dtype = to, name, dtype
        to.sequence += 1
        self.sequence = to.sequence
        self.numbers = {"Sequence number": self.sequence, "Fwd thread id": 0}

    def forward(self) -> None:
        raise NotImplementedError

    def gradient(self) -> None:
        raise NotImplementedError

    node = ""

    def backward(self) -> None:
        to, name = self.to, f"{self.node}Backward0"
        of = {"Sequence number": self.sequence, "Fwd thread id": 1}
        with to.operator(f"autograd::engine::evaluate_function: {name}", **of), to.operator(name, **of):
            self.gradient()
        if self.name in to.blocks:
            to.free(self.name)


class Linear(Layer):
    node = "Addmm"

    def __init__(self, to: Recorder, name: str, n: int, k: int, dtype: str):
        super().__init__(to, name, dtype)
        self.n, self.k = n, k

    def forward(self) -> None:
        shapes = (self.n,), (TOKENS, self.k), (self.k, self.n)
        with (
            self.to.operator("aten::linear", (BATCH, LENGTH, self.k), (self.n, self.k), (self.n,), dtype=self.dtype),
            self.to.operator("aten::addmm", *shapes, dtype=self.dtype, **self.numbers),
        ):
            self.to.allocate(self.name, TOKENS * self.n * SIZE[self.dtype])
            product(self.to, TOKENS, self.n, self.k, self.dtype)

    def gradient(self) -> None:
        for m, n, k in ((TOKENS, self.k, self.n), (self.n, self.k, TOKENS)):
            with self.to.operator("aten::mm", (m, k), (k, n), dtype=self.dtype):
                product(self.to, m, n, k, self.dtype)


class Attention(Layer):
    node = "ScaledDotProductFlashAttention"

    def _launch(self, kernel: str, products: int) -> None:
        flops = products * 2 * BATCH * LENGTH * LENGTH * WIDTH
        name = f"void pytorch_flash::{kernel}<Flash_fwd_kernel_traits<64, 128, 128, 4, cutlass::bfloat16_t> >"
        self.to.launch(name, flops / TENSOR / REACHED + 3, BATCH * HEADS * LENGTH // 128, 128)

    def forward(self) -> None:
        shape = BATCH, HEADS, LENGTH, WIDTH // HEADS
        with (
            self.to.operator("aten::scaled_dot_product_attention", shape, shape, shape, dtype=BF16),
            self.to.operator("aten::_scaled_dot_product_flash_attention", shape, shape, shape, dtype=BF16,
                             **self.numbers),
        ):  # fmt: skip
            self.to.allocate(self.name, TOKENS * WIDTH * SIZE[BF16])
            self._launch("flash_fwd_kernel", 2)

    def gradient(self) -> None:
        shape = BATCH, HEADS, LENGTH, WIDTH // HEADS
        with self.to.operator("aten::_scaled_dot_product_flash_attention_backward", shape, shape, dtype=BF16):
            self._launch("flash_bwd_dq_dk_dv_loop_seqk_parallel_kernel", 5)


class Elementwise(Layer):
    """An operator of one kernel that reads and writes as much as its output is large."""

    def __init__(self, to: Recorder, name: str, kind: str, shape: Shape, dtype: str = F32):
        super().__init__(to, name, dtype)
        self.kind, self.shape = kind, shape
        self.node = "".join(word.title() for word in kind.split("_"))

    def forward(self) -> None:
        with self.to.operator(f"aten::{self.kind}", self.shape, dtype=self.dtype, **self.numbers):
            self.to.allocate(self.name, prod(self.shape) * SIZE[self.dtype])
            elementwise(self.to, f"{self.kind}_kernel", prod(self.shape), self.dtype)

    def gradient(self) -> None:
        with self.to.operator(f"aten::{self.kind}_backward", self.shape, self.shape, dtype=self.dtype):
            elementwise(self.to, f"{self.kind}_backward_kernel", prod(self.shape), self.dtype, 3)


def forward(to: Recorder) -> list[Layer]:
    """The calls of the model; what has a backward, in order."""
    done: list[Layer] = []
    hidden, inner = (BATCH, LENGTH, WIDTH), (BATCH, LENGTH, 4 * WIDTH)

    def call(module: str, path: str, line: str, layer: Layer) -> None:
        with to.module(module, path, line):
            layer.forward()
        done.append(layer)

    with to.module("LanguageModel", "", "model.py(48): forward"):
        call("Embedding", "embed", "model.py(49): embed", Elementwise(to, "embed", "embedding", hidden))
        for number in range(LAYERS):
            at = f"block{number}"
            with to.module("Block", at, "model.py(33): forward"):
                call(
                    "LayerNorm",
                    f"{at}.norm1",
                    "model.py(34): attend",
                    Elementwise(to, f"{at}.norm1", "native_layer_norm", hidden),
                )
                with to.module("Attention", f"{at}.attention", "model.py(15): forward"):
                    call(
                        "Linear",
                        f"{at}.qkv",
                        "model.py(16): qkv",
                        Linear(to, f"{at}.qkv", 3 * WIDTH, WIDTH, BF16),
                    )
                    attention = Attention(to, f"{at}.attend", BF16)
                    attention.forward()
                    done.append(attention)
                    call(
                        "Linear",
                        f"{at}.out",
                        "model.py(18): out",
                        Linear(to, f"{at}.out", WIDTH, WIDTH, BF16),
                    )
                call(
                    "LayerNorm",
                    f"{at}.norm2",
                    "model.py(35): feed",
                    Elementwise(to, f"{at}.norm2", "native_layer_norm", hidden),
                )
                with to.module("FeedForward", f"{at}.feed", "model.py(25): forward"):
                    call(
                        "Linear",
                        f"{at}.up",
                        "model.py(26): up",
                        Linear(to, f"{at}.up", 4 * WIDTH, WIDTH, F32),
                    )
                    call(
                        "GELU",
                        f"{at}.gelu",
                        "model.py(27): act",
                        Elementwise(to, f"{at}.gelu", "gelu", inner),
                    )
                    call(
                        "Linear",
                        f"{at}.down",
                        "model.py(28): down",
                        Linear(to, f"{at}.down", WIDTH, 4 * WIDTH, F32),
                    )
        call("Linear", "head", "model.py(51): head", Linear(to, "head", VOCABULARY, WIDTH, BF16))
    with to.function("train.py(31): loss"):
        loss = Elementwise(to, "loss", "_log_softmax", (TOKENS, VOCABULARY))
        loss.forward()
        done.append(loss)
    return done


def optimizer(to: Recorder) -> None:
    """AdamW without foreach: four kernels for each of the parameters."""
    sizes = [
        VOCABULARY * WIDTH,
        *[WIDTH, 3 * WIDTH * WIDTH, WIDTH * WIDTH, WIDTH, 4 * WIDTH**2, 4 * WIDTH**2] * LAYERS,
    ]
    with to.function("train.py(33): step"), to.span("user_annotation", "Optimizer.step#AdamW.step"):
        for size in sizes:
            for name in ("mul_", "lerp_", "addcmul_", "addcdiv_"):
                with to.operator(f"aten::{name}", (size,)):
                    elementwise(to, f"{name.strip('_')}_kernel", size, F32, 3)


def step(to: Recorder, number: int) -> None:
    """A step of the training: load, copy, forward, backward, update, wait."""
    start = to.clock
    made = to.add("user_annotation", f"ProfilerStep#{number}", start, start)
    with to.function("train.py(27): main"):
        loading = LOADING_US + 400 * (number % 3)
        to.add("user_annotation", "enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__", to.clock,
               to.clock + loading)  # fmt: skip
        to.clock += loading + 5
        with to.function("train.py(29): to"), to.operator("aten::copy_", (BATCH, LENGTH), dtype="long int"):
            bytes_ = 8 * TOKENS
            to.launch("Memcpy HtoD (Pageable -> Device)", bytes_ / 6e3 + 2, 1, api="cudaMemcpyAsync", bytes=bytes_)
        layers = forward(to)
        with to.function("train.py(32): backward"):
            began = to.clock
            to.thread = ENGINE
            for layer in reversed(layers):
                layer.backward()
            to.thread = MAIN
            to.clock = max(to.clock, began)
        optimizer(to)
        with to.function("train.py(34): item"), to.operator("aten::item", ()):
            waited = max(to.busy_until + 10, to.clock + 10)
            to.add("cuda_runtime", "cudaStreamSynchronize", to.clock, waited)
            to.clock = waited + 5
    made["dur"] = round(to.clock - start, 3)
    to.clock += 1


def main() -> None:
    """Write the file."""
    target = Path(sys.argv[1]) if len(sys.argv) > 1 else TARGET
    to = Recorder()
    with to.function("train.py(1): <module>"):
        for number in range(FIRST, FIRST + STEPS):
            step(to, number)
    document = {
        "schemaVersion": 1, "deviceProperties": [DEVICE], "record_shapes": 1, "with_stack": 1, "profile_memory": 1,
        "traceName": "generated_demo", "traceEvents": to.events,
    }  # fmt: skip
    text = json.dumps(document, separators=(",", ":"))
    target.write_bytes(gzip.compress(text.encode(), mtime=0))
    print(f"{target}: {len(to.events):,} events, {target.stat().st_size:,} bytes")


if __name__ == "__main__":
    main()
