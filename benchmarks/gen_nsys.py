#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""A synthetic export of Nsight Systems: the training of a small GPT, as large as you like.

    python benchmarks/gen_nsys.py out.sqlite --kernels 100000

One iteration is a forward on the main thread under `layer:`, stack, argument and operator ranges, a backward on a
second thread under the ranges of the autograd engine, all-reduces on a second stream, an unfused Adam, copies and a
synchronisation: 941 kernels, 1283 runtime calls, 2467 ranges. The same options give the same rows.

What differs between recordings is an option: `--markers new` is what emit_nvtx writes since torch 1.10 with
record_shapes (`, op_id = M, sizes = [[..], ..]`), `--string-ids` moves the texts of ranges to StringIds, `--distinct`
makes every text but the user's layer names a text of its own (by numbers that carry no meaning, as DLProf's `callid`),
`--distinct-shapes` gives every call its own shape, so that nothing can be shared between calls.

An iteration is a template of points in CPU time. Each iteration draws the distances between all points at once and is
written at once, so memory does not grow with the number of kernels. Times are ns.
"""

from __future__ import annotations

import argparse
import re
import sqlite3
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from math import prod
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

PID, MACHINE = 41230, 1
GLOBAL_PID = MACHINE << 48 | PID << 24
MAIN, ENGINE = GLOBAL_PID | PID, GLOBAL_PID | (PID + 57)
COMPUTE, COMMUNICATION = 7, 20  # streams
BATCH, LENGTH, HIDDEN, LAYERS, VOCABULARY = 8, 512, 1024, 12, 50304

# Columns of schema 3. "!" is NOT NULL, ":" a type other than INTEGER.
_DEVICE = "start! end! deviceId! contextId! greenContextId streamId! correlationId globalPid"
TABLES = {
    "StringIds": "id! value:TEXT!",
    "NVTX_EVENTS": "start! end eventType! rangeId category color text:TEXT globalTid endGlobalTid textId domainId"
    " uint64Value int64Value doubleValue:REAL uint32Value int32Value floatValue:REAL jsonTextId jsonText:TEXT"
    " binaryData:TEXT",
    "CUPTI_ACTIVITY_KIND_RUNTIME": "start! end! eventClass! globalTid correlationId nameId! returnValue! callchainId",
    "CUPTI_ACTIVITY_KIND_KERNEL": _DEVICE + " demangledName! shortName! mangledName launchType cacheConfig"
    " registersPerThread! gridX! gridY! gridZ! blockX! blockY! blockZ! staticSharedMemory! dynamicSharedMemory!"
    " localMemoryPerThread! localMemoryTotal! gridId! sharedMemoryExecuted graphNodeId sharedMemoryLimitConfig"
    " qmdBulkReleaseDone qmdPreexitDone qmdLastCtaDone graphId clusterX clusterY clusterZ clusterSchedulingPolicy"
    " maxPotentialClusterSize maxActiveClusters",
    "CUPTI_ACTIVITY_KIND_MEMCPY": _DEVICE + " bytes! copyKind! deprecatedSrcId srcKind dstKind srcDeviceId"
    " srcContextId dstDeviceId dstContextId migrationCause graphNodeId virtualAddress copyCount",
    "CUPTI_ACTIVITY_KIND_MEMSET": _DEVICE + " value! bytes! graphNodeId memKind",
    "CUPTI_ACTIVITY_KIND_SYNCHRONIZATION": _DEVICE.replace("streamId!", "streamId") + " syncType! eventId!",
    "TARGET_INFO_GPU": "vmId! id! name:TEXT busLocation:TEXT l2CacheSize totalMemory memoryBandwidth clockRate smCount"
    " uuid:TEXT chipName:TEXT cuDevice computeMajor computeMinor",
    "TARGET_INFO_SESSION_START_TIME": "utcEpochNs utcTime:TEXT localTime:TEXT",
    "PROCESSES": "globalPid pid name:TEXT",
    "ThreadNames": "nameId! priority globalTid",
    "META_DATA_EXPORT": "name:TEXT value:TEXT",
    "ENUM_NSYS_EVENT_TYPE": "id! name:TEXT label:TEXT",
}  # fmt: skip
FACTS: dict[str, list[tuple[Any, ...]]] = {
    "TARGET_INFO_GPU": [
        (1, 0, "NVIDIA H100 80GB HBM3", "0000:1B:00.0", 52428800, 85045870592, 3352320000000, 1980000000, 132,
         "GPU-0", "GH100", 0, 9, 0),
    ],
    "TARGET_INFO_SESSION_START_TIME": [(1_760_000_000_000_000_000, "", "")],
    "PROCESSES": [(GLOBAL_PID, PID, "python3")],
    "META_DATA_EXPORT": [("EXPORT_SCHEMA_VERSION", "3.20.0"), ("EXPORT_PRODUCT_VERSION", "synthetic")],
    "ENUM_NSYS_EVENT_TYPE": [(34, "NvtxMark", "NVTX mark"), (59, "NvtxPushPopRange", "NVTX push/pop range")],
}  # fmt: skip

_ELEMENTWISE = (
    "void at::native::vectorized_elementwise_kernel<(int)4, at::native::%s, "
    "std::array<char *, (unsigned long)3>>(int, T2, T3)"
)
_GEMM = (
    "sm90_xmma_gemm_f16f16_f16f32_f32_%s_tilesize128x128x64_bz64x64x64_warpgroupsize1x1x1_execute_segment_k_off_"
    "kernel__5x_cublas"
)
_NATIVE = "void at::native::(anonymous namespace)::"
_SUM = (
    "void at::native::reduce_kernel<(int)128, (int)4, at::native::ReduceOp<c10::Half, at::native::func_wrapper_t"
    "<c10::Half, at::native::sum_functor<c10::Half, float, c10::Half>>>>(T3)"
)
_EMBED = _NATIVE + "indexSelectLargeIndex<c10::Half, long, unsigned int, (int)2, (int)2, (int)-2, (bool)1>(T1)"
_NORM = _NATIVE + "vectorized_layer_norm_kernel<c10::Half, float>(int, T2, T1 *)"
_NORM_INPUT = _NATIVE + "layer_norm_grad_input_kernel_vectorized<c10::Half, float>(T1)"
_NORM_WEIGHT = _NATIVE + "GammaBetaBackwardCUDAKernelTemplate<c10::Half, float>(long)"
_DROP = _NATIVE + "fused_dropout_kernel_vec<c10::Half, float, unsigned int, (int)1, (int)4, bool>(T1)"
_SOFTMAX = "void (anonymous namespace)::softmax_warp_%s<c10::Half, c10::Half, float, (int)10, (bool)0, (bool)0>(T2 *)"
_LOSS = "void (anonymous namespace)::cunn_SoftMax%s<(int)8, c10::Half, float, c10::Half, LogSoftMax%sEpilogue>(T4 *)"
_NLL = _NATIVE + "nll_loss_%s_reduce_cuda_kernel_2d<c10::Half, float, long>(T1 *)"
_ALL_REDUCE = "ncclDevKernel_AllReduce_Sum_f16_RING_LL(ncclDevKernelArgsStorage<(unsigned long)4096>)"

Shape = tuple[int, ...]


@dataclass(frozen=True)
class Options:
    """What to generate."""

    kernels: int = 10_000
    new_markers: bool = False
    string_ids: bool = False
    distinct: bool = False
    distinct_shapes: bool = False
    seed: int = 0


class Kernel(NamedTuple):
    """A kernel to launch: name, usual duration in µs, grid, block, stream."""

    name: str
    us: float
    grid: Shape = ()
    block: Shape = (128, 1, 1)
    stream: int = COMPUTE


class Range(NamedTuple):
    """A range between two points. `seq` counts from the iteration's first sequence number; None: it has none."""

    thread: int
    push: int
    pop: int
    text: str
    operator: bool
    seq: int | None
    sizes: tuple[Shape, ...]


class Launch(NamedTuple):
    """A runtime call between two points, by the code of its name."""

    thread: int
    start: int
    end: int
    name: int


def gemm(m: int, n: int, k: int, layout: str) -> Kernel:
    grid = (n // 128 + 1, m // 128 + 1, 1)
    return Kernel(_GEMM % layout, 2.0 * m * n * k / 5.5e8, grid, (384, 1, 1))


def elementwise(n: int, functor: str, operands: int = 3) -> Kernel:
    return Kernel(_ELEMENTWISE % functor, n * 2 * operands / 3.0e6, ((n + 511) // 512, 1, 1))


def tensor(shape: Shape, dtype: str = "float16") -> dict[str, Any]:
    return {"name": "", "type": "tensor", "shape": shape, "dtype": dtype}


def scalar(value: Any, name: str = "") -> dict[str, Any]:
    return {"name": name, "type": type(value).__name__, "value": value}


class Strings:
    """The table StringIds while it is filled."""

    def __init__(self) -> None:
        self.codes: dict[str, int] = {}

    def code(self, text: str) -> int:
        return self.codes.setdefault(text, len(self.codes) + 1)


class Step:
    """One iteration: points in CPU time, and the ranges, calls and kernels that hang on them."""

    def __init__(self, strings: Strings, rng: np.random.Generator):
        self.strings, self._rng = strings, rng
        self.distances: list[int] = []  # ns before each point
        self.ranges: list[Range] = []
        self.launches: list[Launch] = []
        self.kernels: list[tuple[int, Kernel]] = []  # launch, kernel
        self.copies: list[tuple[int, int, int, int]] = []  # launch, duration, bytes, kind
        self.sets: list[tuple[int, int, int]] = []  # launch, duration, bytes
        self.numbers = 0  # sequence numbers used
        self._open: dict[int, list[tuple[int, str, bool, int | None, tuple[Shape, ...]]]] = {
            MAIN: [],
            ENGINE: [],
        }
        self._thread = MAIN
        self._tape: list[tuple[str, int, Sequence[Kernel], tuple[Shape, ...]]] = []
        self._line = 40
        self._build()

    def _point(self, ns: int) -> int:
        self.distances.append(ns)
        return len(self.distances) - 1

    def _push(
        self,
        text: str,
        ns: int = 700,
        operator: bool = False,
        seq: int | None = None,
        sizes: tuple[Shape, ...] = (),
    ) -> None:
        self._open[self._thread].append((self._point(ns), text, operator, seq, sizes))

    def _pop(self, ns: int = 500) -> None:
        point, text, operator, seq, sizes = self._open[self._thread].pop()
        self.ranges.append(Range(self._thread, point, self._point(ns), text, operator, seq, sizes))

    def _call(self, name: str, ns: int = 2600, before: int = 900) -> int:
        start = self._point(before)
        self.launches.append(Launch(self._thread, start, self._point(ns), self.strings.code(name)))
        return len(self.launches) - 1

    def _kernel(self, kernel: Kernel) -> None:
        if len(self.kernels) % 3 == 0:
            self._call("cudaStreamIsCapturing_v10000", 300, 150)
        if kernel.stream != COMPUTE:
            self._call("cudaEventRecordWithFlags_v11010", 900, 200)
            self._call("cudaStreamWaitEvent_v3020", 700, 200)
        extended = "gemm" in kernel.name or "nccl" in kernel.name
        call = self._call("cudaLaunchKernelExC_v11060" if extended else "cudaLaunchKernel_v7000")
        grid = kernel.grid or (int(self._rng.integers(16, 2048)), 1, 1)
        self.kernels.append((call, kernel._replace(grid=grid)))

    def _op(
        self,
        mod: str,
        op: str,
        args: list[dict[str, Any]],
        names: Sequence[str],
        forward: Sequence[Kernel],
        node: str = "",
        backward: Sequence[Kernel] = (),
    ) -> None:
        """A call with its operators `names`, outermost first; `node` is what its backward is called, if it has one."""
        self._line = 40 + (self._line * 7 + 13) % 400
        frames = ["/home/user/app/train.py:212", "/home/user/app/train.py:97", "/opt/torch/nn/modules/module.py:1751",
                  f"/home/user/app/model/gpt.py:{self._line}", "/opt/torch/nn/modules/linear.py:125"]  # fmt: skip
        sizes = tuple(arg.get("shape", ()) for arg in args)
        self._push(str({"traceMarker": frames}), 9000)
        self._push(str({"mod": mod, "op": op, "args": args}), 4000)
        for name in names:
            self._push(name, operator=True, seq=self.numbers, sizes=sizes)
        if node:
            self._tape.append((node, self.numbers, backward, sizes[:1]))
            self.numbers += 1
        for kernel in forward:
            self._kernel(kernel)
        for _ in (*names, "args", "trace"):
            self._pop()

    def _build(self) -> None:
        self._push("layer:step", 20000)
        call = self._call("cudaMemcpyAsync_v3020", 6000)
        self.copies.append((call, 9000, BATCH * LENGTH * 8, 1))
        self.sets.append((self._call("cudaMemsetAsync_v3020", 2500), 1600, 4096))
        self._push("layer:forward", 5000)
        self._forward()
        self._pop()
        self._push("layer:backward", 4000)
        self._push(str({"traceMarker": ["/home/user/app/train.py:212", "/home/user/app/train.py:103"]}), 6000)
        self._push(str({"mod": "Tensor", "op": "backward", "args": [scalar(1.0)]}), 3000)
        self._backward()
        for _ in range(3):
            self._pop()
        self._push("layer:optimizer", 4000)
        self._push("Optimizer.step#Adam.step", 3000, operator=True)
        self._optimizer()
        self._pop()
        self._pop()
        self.copies.append((self._call("cudaMemcpyAsync_v3020", 7000), 1900, 4, 2))
        self.sync = self._call("cudaStreamSynchronize_v3020", 3000)
        self._pop(2000)

    def _forward(self) -> None:
        b, s, h, v = BATCH, LENGTH, HIDDEN, VOCABULARY
        heads, tokens = h // 64, b * s
        scores = b * heads * s * s
        self._op("torch.nn.functional", "embedding", [tensor((b, s), "int64"), tensor((v, h))], ["aten::embedding"],
                 [Kernel(_EMBED, tokens * h * 4 / 2e6)], "EmbeddingBackward0",
                 [Kernel(_EMBED, tokens * h * 8 / 2e6)])  # fmt: skip
        for layer in range(LAYERS):
            self._push(f"layer:h.{layer}", 2500)
            self._norm()
            self._linear(3 * h, h)
            self._matmul((b, heads, s, 64), (b, heads, 64, s))
            self._op("Tensor", "__truediv__", [tensor((b, heads, s, s)), scalar(8.0)], ["aten::div"],
                     [elementwise(scores, "MulFunctor<float>", 2)], "DivBackward0",
                     [elementwise(scores, "MulFunctor<float>", 2)])  # fmt: skip
            self._op("torch.nn.functional", "softmax", [tensor((b, heads, s, s)), scalar(-1, "dim")],
                     ["aten::softmax", "aten::_softmax"], [Kernel(_SOFTMAX % "forward", scores * 4 / 2.6e6)],
                     "SoftmaxBackward0", [Kernel(_SOFTMAX % "backward", scores * 6 / 2.6e6)])  # fmt: skip
            self._dropout((b, heads, s, s))
            self._matmul((b, heads, s, s), (b, heads, s, 64))
            self._linear(h, h)
            self._dropout((b, s, h))
            self._add()
            self._norm()
            self._linear(4 * h, h)
            wide = tokens * 4 * h
            self._op("torch.nn.functional", "gelu", [tensor((b, s, 4 * h))], ["aten::gelu"],
                     [elementwise(wide, "GeluCUDAKernelImpl", 2)], "GeluBackward0",
                     [elementwise(wide, "GeluBackwardCUDAKernelImpl")])  # fmt: skip
            self._linear(h, 4 * h)
            self._dropout((b, s, h))
            self._add()
            self._pop()
            self._tape.append(("", layer, (), ()))  # the gradients of a layer are reduced together
        self._norm()
        self._linear(v, h)
        loss = {
            way: Kernel(_LOSS % (way, way), tokens * v * us / 2.4e6) for way, us in (("Forward", 4), ("Backward", 6))
        }
        self._op("torch.nn.functional", "cross_entropy", [tensor((tokens, v)), tensor((tokens,), "int64")],
                 ["aten::cross_entropy_loss"],
                 [loss["Forward"], Kernel(_NLL % "forward", 12)], "NllLossBackward0",
                 [Kernel(_NLL % "backward", 30), loss["Backward"]])  # fmt: skip

    def _linear(self, out: int, inner: int) -> None:
        t = BATCH * LENGTH
        arguments = [tensor((BATCH, LENGTH, inner)), tensor((out, inner)), tensor((out,))]
        backward = [
            gemm(t, inner, out, "nn_n"),
            gemm(out, inner, t, "nt_n"),
            Kernel(_SUM, t * out * 2 / 2.5e6),
        ]
        self._op("torch.nn.functional", "linear", arguments, ["aten::linear", "aten::addmm"],
                 [gemm(t, out, inner, "tn_n")], "AddmmBackward0", backward)  # fmt: skip

    def _matmul(self, left: Shape, right: Shape) -> None:
        m, n, k = prod(left[:-1]), right[-1], left[-1]
        self._op("torch", "matmul", [tensor(left), tensor(right)], ["aten::matmul", "aten::bmm"],
                 [gemm(m, n, k, "tn_n")], "BmmBackward0", [gemm(m, k, n, "nn_n"), gemm(k, n, m, "nt_n")])  # fmt: skip

    def _norm(self) -> None:
        t, h = BATCH * LENGTH, HIDDEN
        arguments = [tensor((BATCH, LENGTH, h)), scalar((h,)), tensor((h,)), tensor((h,)), scalar(1e-05)]
        self._op("torch.nn.functional", "layer_norm", arguments, ["aten::layer_norm", "aten::native_layer_norm"],
                 [Kernel(_NORM, t * h * 4 / 2.4e6)], "NativeLayerNormBackward0",
                 [Kernel(_NORM_INPUT, t * h * 6 / 2.2e6), Kernel(_NORM_WEIGHT, t * h * 6 / 2.2e6)])  # fmt: skip

    def _dropout(self, shape: Shape) -> None:
        arguments = [tensor(shape), scalar(0.1), scalar(True, "training"), scalar(False, "inplace")]
        self._op("torch.nn.functional", "dropout", arguments, ["aten::dropout", "aten::native_dropout"],
                 [Kernel(_DROP, prod(shape) * 5 / 2.6e6)], "NativeDropoutBackward0",
                 [elementwise(prod(shape), "masked_scale_kernel<bool, c10::Half, float>")])  # fmt: skip

    def _add(self) -> None:
        shape = (BATCH, LENGTH, HIDDEN)
        kernel = elementwise(prod(shape), "CUDAFunctor_add<c10::Half>")
        self._op(
            "Tensor",
            "__add__",
            [tensor(shape), tensor(shape)],
            ["aten::add"],
            [kernel],
            "AddBackward0",
            [kernel],
        )

    def _backward(self) -> None:
        """The main thread waits in Tensor.backward while the engine's thread works."""
        self._thread = ENGINE
        for node, seq, kernels, sizes in reversed(self._tape):
            if not node:
                self._push("nccl:all_reduce", 1500, operator=True)
                us = 12 * HIDDEN * HIDDEN * 4 / 2.2e5
                self._kernel(Kernel(_ALL_REDUCE, us, (24, 1, 1), (544, 1, 1), COMMUNICATION))
                self._pop()
                continue
            self._push("autograd::engine::evaluate_function: " + node, 3000, operator=True)
            self._push(node, 1200, operator=True, seq=seq, sizes=sizes)
            for kernel in kernels:
                product = "gemm" in kernel.name
                if product:
                    self._push("aten::mm", operator=True, sizes=sizes * 2)
                self._kernel(kernel)
                if product:
                    self._pop()
            self._pop()
            self._pop()
        self._thread = MAIN

    def _optimizer(self) -> None:
        """Adam without fusion: four pointwise kernels per parameter."""
        h = HIDDEN
        layer = [(3 * h, h), (3 * h,), (h, h), (h,), (4 * h, h), (4 * h,), (h, 4 * h), (h,)]
        for shape in [(VOCABULARY, h), *layer * LAYERS]:
            t = tensor(shape)
            for op, args in (("mul_", [t, scalar(0.9)]), ("add_", [t, t]), ("sqrt", [t]), ("div_", [t, t])):
                functor = f"{op.strip('_').capitalize()}Functor<float>"
                self._op("Tensor", op, args, [f"aten::{op}"], [elementwise(prod(shape), functor)])


def template(range_: Range, options: Options) -> str:
    """The text of a range with %(seq)d and %(id)d where it differs from iteration to iteration."""
    text = range_.text.replace("%", "%%")
    if text.startswith("{"):
        if options.distinct:
            number = "'callid': %(id)d, " + ("'input_callids': [%(id)d, 0], " if "'args': " in text else "")
            key = "'args': [" if "'args': " in text else "'traceMarker': ["
            text = text.replace(key, number + key, 1)
        if options.distinct_shapes:
            first = re.search(r"'shape': (\(\d+,)", text)
            text = text.replace(f"'shape': {first[1]}", "'shape': (%(id)d,") if first else text
        return text
    if not range_.operator:
        return text
    if range_.seq is not None:
        text += ", seq = %(seq)d"
    if options.new_markers or options.distinct:
        text += ", op_id = %(id)d"
    if options.new_markers and range_.sizes:
        text += f", sizes = {[list(shape) for shape in range_.sizes]}"
    return text


class _Writer:
    """Turns the template into rows, iteration by iteration."""

    def __init__(self, database: sqlite3.Connection, options: Options):
        self._database, self._options = database, options
        self.strings = Strings()
        self._rng = np.random.default_rng([options.seed, 1000])
        step = self._step = Step(self.strings, np.random.default_rng(options.seed))
        self.iterations = max(1, round(options.kernels / len(step.kernels)))
        ranges = self._ranges = sorted(step.ranges, key=lambda r: r.push)
        self._templates = [template(r, options) for r in ranges]
        self._varying = [i for i, text in enumerate(self._templates) if "%(" in text]
        self._push, self._pop = (np.array([r[i] for r in ranges]) for i in (1, 2))
        self._call_start, self._call_end = (np.array([c[i] for c in step.launches]) for i in (1, 2))
        self._launch_of = np.array([launch for launch, _ in step.kernels])
        self._usual = np.array([max(1500, int(kernel.us * 1000)) for _, kernel in step.kernels], np.float64)
        self._stream = np.array([kernel.stream for _, kernel in step.kernels])
        self._busy_until = {COMPUTE: 0, COMMUNICATION: 0}
        self._time, self._correlation, self._id, self._seq = 1_500_000_000, 100, 1, 1
        self._kernel_columns = [self._constants(kernel) for _, kernel in step.kernels]

    def _constants(self, kernel: Kernel) -> tuple[int, ...]:
        name = self.strings.code(kernel.name)
        short = self.strings.code(kernel.name.split("<")[0].split("(")[0].removeprefix("void ").split("::")[-1])
        shared = name % 5 * 8192
        return (name, short, name, 32 + name * 8 % 200, *kernel.grid, *kernel.block, shared, shared + 1024)

    def iteration(self, slowdown: float) -> None:
        step, rng = self._step, self._rng
        usual = np.array(step.distances, np.float64) * slowdown
        distances = np.maximum(60, usual * rng.lognormal(0, 0.18, len(usual)))
        points = self._time + np.cumsum(distances.astype(np.int64))
        duration = np.maximum(1000, self._usual * rng.lognormal(0, 0.05, len(self._usual))).astype(np.int64)
        start = self._device_times(points[self._call_end][self._launch_of] + 2500, duration)
        # The host waits for the device in the last call.
        waits = max(0, int((start + duration).max()) + 1500 - int(points[self._call_end[step.sync]]))
        points[self._call_end[step.sync] :] += waits
        correlation = self._correlation + np.arange(len(step.launches))
        self._write_ranges(points)
        self._write_launches(points, correlation)
        self._write_kernels(start, duration, correlation)
        self._write_memory(points, correlation)
        self._time = int(points[-1]) + 30000
        self._correlation += len(step.launches)
        self._id += max(len(self._ranges), len(step.kernels))
        self._seq += step.numbers

    def _device_times(self, ready: npt.NDArray[np.int64], duration: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
        """Starts of the kernels: in order per stream, an all-reduce after the gradients it reduces."""
        start = np.empty(len(ready), np.int64)
        compute = np.flatnonzero(self._stream == COMPUTE)
        for stream in (COMPUTE, COMMUNICATION):
            members = np.flatnonzero(self._stream == stream)
            when = ready[members]
            if stream == COMMUNICATION:
                before = compute[np.searchsorted(compute, members) - 1]
                when = np.maximum(when, start[before] + duration[before] + 1500)
            when[0] = max(when[0], self._busy_until[stream])
            length = duration[members] + 700
            earlier = np.cumsum(length) - length
            start[members] = np.maximum.accumulate(when - earlier) + earlier
            self._busy_until[stream] = int(start[members[-1]] + length[-1])
        return start

    def _write_ranges(self, points: npt.NDArray[np.int64]) -> None:
        texts: list[Any] = list(self._templates)
        for i in self._varying:
            texts[i] = self._templates[i] % {
                "id": self._id + i,
                "seq": self._seq + (self._ranges[i].seq or 0),
            }
        ids: list[Any] = [None] * len(texts)
        if self._options.string_ids:
            texts, ids = ids, [self.strings.code(text) for text in texts]
        threads = [r.thread for r in self._ranges]
        columns = "start, end, text, globalTid, textId, eventType, domainId"
        self._database.executemany(
            f"insert into NVTX_EVENTS ({columns}) values (?,?,?,?,?,59,0)",
            zip(points[self._push].tolist(), points[self._pop].tolist(), texts, threads, ids),
        )

    def _write_launches(self, points: npt.NDArray[np.int64], correlation: npt.NDArray[np.int64]) -> None:
        calls = self._step.launches
        self._database.executemany(
            "insert into CUPTI_ACTIVITY_KIND_RUNTIME values (?,?,1,?,?,?,0,null)",
            zip(points[self._call_start].tolist(), points[self._call_end].tolist(), [c.thread for c in calls],
                correlation.tolist(), [c.name for c in calls]),
        )  # fmt: skip

    def _write_kernels(
        self,
        start: npt.NDArray[np.int64],
        duration: npt.NDArray[np.int64],
        correlation: npt.NDArray[np.int64],
    ) -> None:
        begin, end = start.tolist(), (start + duration).tolist()
        number, stream = correlation[self._launch_of].tolist(), self._stream.tolist()
        self._database.executemany(
            "insert into CUPTI_ACTIVITY_KIND_KERNEL (start, end, streamId, correlationId, gridId, demangledName,"
            " shortName, mangledName, registersPerThread, gridX, gridY, gridZ, blockX, blockY, blockZ,"
            " dynamicSharedMemory, sharedMemoryExecuted, deviceId, contextId, globalPid, launchType,"
            " cacheConfig, staticSharedMemory, localMemoryPerThread, localMemoryTotal, sharedMemoryLimitConfig,"
            " clusterX, clusterY, clusterZ, clusterSchedulingPolicy)"
            f" values ({'?,' * 17}0,1,{GLOBAL_PID},1,0,0,0,0,0,1,1,1,0)",
            [
                (begin[i], end[i], stream[i], number[i], self._id + i, *self._kernel_columns[i])
                for i in np.argsort(start, kind="stable").tolist()
            ],
        )

    def _write_memory(self, points: npt.NDArray[np.int64], correlation: npt.NDArray[np.int64]) -> None:
        common = "start, end, correlationId, bytes, deviceId, contextId, streamId, globalPid"
        constant = f"0,1,{COMPUTE},{GLOBAL_PID}"
        after = points[self._call_end] + 2000
        for launch, duration, size, kind in self._step.copies:
            row = (int(after[launch]), int(after[launch]) + duration, int(correlation[launch]), size, kind)
            self._database.execute(
                f"insert into CUPTI_ACTIVITY_KIND_MEMCPY ({common}, copyKind) values (?,?,?,?,{constant},?)",
                row,
            )
        for launch, duration, size in self._step.sets:
            row4 = (int(after[launch]), int(after[launch]) + duration, int(correlation[launch]), size)
            self._database.execute(
                f"insert into CUPTI_ACTIVITY_KIND_MEMSET ({common}, value) values (?,?,?,?,{constant},0)",
                row4,
            )
        sync = self._step.sync
        times = (
            int(points[self._call_start[sync]]),
            int(points[self._call_end[sync]]),
            int(correlation[sync]),
        )
        self._database.execute(
            "insert into CUPTI_ACTIVITY_KIND_SYNCHRONIZATION (start, end, correlationId, deviceId, contextId, streamId,"
            f" globalPid, syncType, eventId) values (?,?,?,{constant},3,0)", times,
        )  # fmt: skip


def write(path: Path, options: Options) -> dict[str, int]:
    """Write the export, replacing `path`. Returns the number of rows of the three large tables."""
    path.unlink(missing_ok=True)
    database = sqlite3.connect(path, isolation_level=None)
    for pragma in (
        "page_size=4096",
        "journal_mode=off",
        "synchronous=off",
        "cache_size=-200000",
        "locking_mode=exclusive",
    ):
        database.execute(f"pragma {pragma}")
    for name, columns in TABLES.items():
        declared = [_declare(column) for column in columns.split()]
        database.execute(f"create table {name} ({', '.join(declared)})")
    database.execute("begin")
    writer = _Writer(database, options)
    for number in range(writer.iterations):
        writer.iteration(slowdown=1.0 if number else 1.8)  # the first one warms up
    facts = {
        **FACTS,
        "ThreadNames": [
            (writer.strings.code("python3"), 0, MAIN),
            (writer.strings.code("pt_autograd_0"), 0, ENGINE),
        ],
    }
    facts["StringIds"] = [(code, text) for text, code in writer.strings.codes.items()]
    for name, rows in facts.items():
        database.executemany(f"insert into {name} values ({', '.join('?' * len(rows[0]))})", rows)
    database.execute("commit")
    large = ("CUPTI_ACTIVITY_KIND_KERNEL", "CUPTI_ACTIVITY_KIND_RUNTIME", "NVTX_EVENTS")
    counts = {name: database.execute(f"select count(*) from {name}").fetchone()[0] for name in large}
    database.close()
    return counts


def _declare(column: str) -> str:
    name, _, kind = column.rstrip("!").partition(":")
    return f"{name} {kind or 'INTEGER'}{' NOT NULL' if column.endswith('!') else ''}"


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description="Example: gen_nsys.py out.sqlite --kernels 100000 --markers new")
    parser.add_argument("out", type=Path, nargs="?", help="file to write; without it, only this help")
    parser.add_argument("--kernels", type=int, default=Options.kernels, help="kernels, about; default: %(default)s")
    parser.add_argument("--markers", choices=("classic", "new"), default="classic", help="new: with op_id and sizes")
    parser.add_argument("--string-ids", action="store_true", help="texts of ranges in StringIds")
    parser.add_argument("--distinct", action="store_true", help="every text once, by numbers without a meaning")
    parser.add_argument("--distinct-shapes", action="store_true", help="every call with a shape of its own")
    parser.add_argument("--seed", type=int, default=Options.seed, help="of the random durations; default: %(default)s")
    return parser


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command; returns the exit code."""
    parser = _parser()
    arguments = parser.parse_args(argv)
    if arguments.out is None:
        parser.print_help()
        return 0
    options = Options(
        arguments.kernels, arguments.markers == "new", arguments.string_ids, arguments.distinct,
        arguments.distinct_shapes, arguments.seed,
    )  # fmt: skip
    counts = write(arguments.out, options)
    rows = ", ".join(f"{number} {name.rpartition('_')[2].lower()}" for name, number in counts.items())
    print(f"{arguments.out}: {rows} rows, {arguments.out.stat().st_size / 1e6:.0f} MB", file=sys.stderr)
    return 0


if __name__ == "__main__":
    sys.exit(main())
