# SPDX-License-Identifier: Apache-2.0
"""Facts of the run, for later advice: the machine, the versions, torch's switches, models, optimizers, loaders.

Switches are read when the window closes; models, optimizers and loaders are described when an existing hook first
meets them in the window, and are held by weak reference. A fact is read from a description (shape, dtype, flag),
never from a tensor's data, nothing initializes or waits for a device, and a fact that cannot be read is left out. Of
the environment only the variables of `SWITCHES` are read. To add a fact: a line in a table here and in
docs/capture.md.

>>> memory_format((2, 3, 4, 5), (60, 1, 15, 3)), memory_format((2, 3, 4, 5), None)
('channels_last', 'contiguous')
"""

from __future__ import annotations

import os
import platform
import re
import sys
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from functools import cache
from typing import TYPE_CHECKING, Any

import torch

import pyprof
from pyprof.capture.core import torch_internals
from pyprof.capture.core.internal_errors import tolerated
from pyprof.capture.environment import processor, ranks
from pyprof.capture.instrument import call_sites, seen_objects
from pyprof.capture.instrument.seen_objects import as_text, autocast_devices, gradients, uses_cuda
from pyprof.core.model import Tensor

if TYPE_CHECKING:
    from pyprof.capture.core.operators import Operator, Operators

# The only environment variables that are recorded: those that change speed, memory or numerics.
SWITCHES = (
    "OMP_NUM_THREADS", "MKL_NUM_THREADS", "KMP_AFFINITY", "KMP_BLOCKTIME", "CUDA_LAUNCH_BLOCKING",
    "CUDA_VISIBLE_DEVICES", "CUDA_DEVICE_MAX_CONNECTIONS", "CUDA_MODULE_LOADING", "CUBLAS_WORKSPACE_CONFIG",
    "PYTORCH_CUDA_ALLOC_CONF", "PYTORCH_ALLOC_CONF", "PYTORCH_NO_CUDA_MEMORY_CACHING", "NVIDIA_TF32_OVERRIDE",
    "TORCH_ALLOW_TF32_CUBLAS_OVERRIDE", "TORCH_CUDNN_V8_API_DISABLED", "TORCH_COMPILE_DISABLE", "TORCHDYNAMO_DISABLE",
    "TORCH_NCCL_BLOCKING_WAIT", "TORCH_NCCL_ASYNC_ERROR_HANDLING", "TORCH_DISTRIBUTED_DEBUG", "NCCL_DEBUG", "NCCL_ALGO",
    "NCCL_PROTO", "NCCL_P2P_DISABLE", "NCCL_IB_DISABLE", "NCCL_SHM_DISABLE",
)  # fmt: skip
_SECRET = re.compile(r"(?i)(key|token|secret|passw|passphrase|credential|auth)")
_backends: Any = torch.backends
_WITH_PASSWORD = re.compile(r"(?<=://)[^/@\s]+@")


@cache
def _cpu_name() -> str:
    with suppress(OSError), open("/proc/cpuinfo", encoding="utf-8", errors="replace") as file:
        for line in file:
            if line.startswith(("model name", "Hardware", "cpu model")):
                return line.partition(":")[2].strip()
    return platform.processor() or platform.machine()


# One fact each, read when the window closes.
_SINGLE: dict[str, Callable[[], Any]] = {
    "python": platform.python_version,
    "python.debug_ranges": lambda: None if call_sites.complete() else False,
    "torch": lambda: torch.__version__,
    "cuda": lambda: torch.version.cuda,
    "hip": lambda: torch.version.hip,
    "cudnn": lambda: _backends.cudnn.version() if uses_cuda() else None,
    "pyprof": lambda: pyprof.__version__,
    "command": lambda: command(sys.argv),
    "host.system": platform.platform,
    "cpu.name": _cpu_name,
    "cpu.count": os.cpu_count,
    "cpu.usable": lambda: len(os.sched_getaffinity(0)),
    "cpu.memory_bytes": lambda: os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE"),
    "gpu.count": lambda: torch.cuda.device_count(),
    "threads.intraop": lambda: torch.get_num_threads(),
    "threads.interop": lambda: torch.get_num_interop_threads(),
    "default_dtype": lambda: torch.get_default_dtype(),
    "matmul.precision": lambda: torch.get_float32_matmul_precision(),
    "matmul.tf32": lambda: torch.backends.cuda.matmul.allow_tf32,
    "matmul.fp16_reduced_precision": lambda: torch.backends.cuda.matmul.allow_fp16_reduced_precision_reduction,
    "matmul.bf16_reduced_precision": lambda: torch.backends.cuda.matmul.allow_bf16_reduced_precision_reduction,
    "cudnn.tf32": lambda: torch.backends.cudnn.allow_tf32,
    "cudnn.benchmark": lambda: torch.backends.cudnn.benchmark,
    "cudnn.deterministic": lambda: torch.backends.cudnn.deterministic,
    "cudnn.enabled": lambda: torch.backends.cudnn.enabled,
    "deterministic": lambda: torch.are_deterministic_algorithms_enabled(),
    "anomaly_mode": lambda: torch.is_anomaly_enabled(),
    "compile.frames": lambda: _compiled_frames(),
}


def gather() -> dict[str, str]:
    """Return the facts by their dotted names, as text. Never raises; a fact that cannot be read is absent."""
    out: dict[str, str] = {}
    for name, read in _SINGLE.items():
        with tolerated():
            _put(out, name, read())
    for group in (_switches, processor.facts, _gpus, _distributed, _amp, _objects):
        with tolerated():
            for name, value in group().items():
                _put(out, name, value)
    return out


def gather_seen(operators: Operators) -> dict[str, str]:
    """Return the facts that follow from the recorded operators; empty if there are none."""
    with tolerated():
        return {name: as_text(value) for name, value in _seen_in(operators).items()}
    return {}


def _put(out: dict[str, str], name: str, value: Any) -> None:
    if value is not None:
        out[name] = as_text(value)


def command(words: Sequence[str]) -> str:
    """Return a command line with anything that looks like a secret masked.

    >>> command(["train.py", "--lr", "1", "--api-key=abc", "--token", "xyz", "s3://me:pw@host/data"])
    'train.py --lr 1 --api-key=*** --token *** s3://***@host/data'
    """
    out: list[str] = []
    hide = False
    for word in words:
        name, separator, _ = word.partition("=")
        secret = bool(_SECRET.search(name)) and word.startswith("-")
        if hide and not word.startswith("-"):
            out.append("***")
        elif separator and _SECRET.search(name) and (secret or "/" not in name):  # also api_key=abc
            out.append(f"{name}=***")
        else:
            out.append(_WITH_PASSWORD.sub("***@", word))
        hide = secret and not separator
    return " ".join(out)


def _compiled_frames() -> int:
    """Return the number of frames torch.compile has compiled so far; 0 if nothing has imported it."""
    utils: Any = sys.modules.get("torch._dynamo.utils")
    return int(utils.counters["frames"]["total"]) if utils is not None else 0


def _switches() -> dict[str, Any]:
    return {f"switch.{name}": os.environ[name] for name in SWITCHES if name in os.environ}


def _gpus() -> dict[str, Any]:
    """Return facts of the GPUs. Properties are read only if the program uses CUDA: reading would initialize it."""
    out: dict[str, Any] = {}
    if not uses_cuda():
        return out
    for number in range(torch.cuda.device_count()):
        properties = torch.cuda.get_device_properties(number)
        out[f"gpu.{number}.name"] = properties.name
        out[f"gpu.{number}.memory_bytes"] = properties.total_memory
        out[f"gpu.{number}.sm_count"] = properties.multi_processor_count
        out[f"gpu.{number}.compute_capability"] = f"{properties.major}.{properties.minor}"
        with tolerated():
            out[f"gpu.{number}.peak_allocated_bytes"] = torch.cuda.max_memory_allocated(number)
    out["gpu.current"] = torch.cuda.current_device()
    with tolerated():
        out["cuda.driver"] = torch_internals.look_up("torch._C._cuda_getDriverVersion", "")()
    return out


def _distributed() -> dict[str, Any]:
    facts = {f"distributed.{name}": value for name, value in ranks.group().items()}
    local = os.environ.get("LOCAL_RANK", "")
    if facts and local.isdigit():
        facts["distributed.local_rank"] = local
    return facts


def _amp() -> dict[str, Any]:
    """Return the autocast state of the closing thread, and the one that modules of the window ran in."""
    out: dict[str, Any] = {}
    for device in autocast_devices():
        enabled = torch.is_autocast_enabled(device)
        out[f"autocast.{device}.at_end"] = enabled
        dtype = seen_objects.autocast.get(device) or (torch.get_autocast_dtype(device) if enabled else None)
        out[f"autocast.{device}.seen"] = enabled or device in seen_objects.autocast
        out[f"autocast.{device}.dtype"] = dtype
    return out


def _objects() -> dict[str, Any]:
    """Return facts of models, optimizers and loaders, numbered in order of appearance; a module inside another model is
    skipped."""
    alive = [module for module in (reference() for reference, _ in seen_objects.models) if module is not None]
    inner = {id(child) for root in alive for child in root.modules() if child is not root}
    models = []
    for reference, facts in seen_objects.models:
        module = reference()
        if module is not None and id(module) in inner:
            continue
        if module is not None and facts.get("gradients") in (None, 0):
            facts.update(gradients(module.parameters()))
        if facts.get("parameters"):  # a loss function has no parameters
            models.append(facts)
    out: dict[str, Any] = {}
    groups = (
        ("model", models),
        ("optimizer", [facts for _, facts in seen_objects.optimizers]),
        ("loader", _distinct(facts for _, facts in seen_objects.loaders)),
    )
    for kind, items in groups:
        for number, facts in enumerate(items):
            out.update({f"{kind}.{number}.{name}": value for name, value in facts.items()})
    return out


def _distinct(items: Iterable[dict[str, Any]]) -> list[dict[str, Any]]:
    """Drop duplicates: a loader creates an iterator per epoch."""
    out: list[dict[str, Any]] = []
    for item in items:
        if item not in out:
            out.append(item)
    return out


def _seen_in(operators: Operators) -> dict[str, Any]:
    """Return facts from the operators: memory formats of the inputs of convolutions, and regions of torch.compile."""
    counts: Counter[str] = Counter()
    for operator, count in operators.counted():
        name = _counted(operator)
        if name is not None:
            counts[name] += count
    if len(operators):
        counts.setdefault("compile.regions", 0)
    return dict(counts)


def _counted(operator: Operator) -> str | None:
    from pyprof.capture.collectors.kineto import FUNCTION  # not imported at the top: `init` works without it

    call = operator.call
    if call.op.startswith("Torch-Compiled Region"):
        return "compile.regions"
    if call.op != "aten::convolution" or operator.scope != FUNCTION or not call.args:
        return None
    value = call.args[0].value
    format_ = memory_format(value.shape, value.stride) if isinstance(value, Tensor) else None
    return f"convolution.inputs.{format_}" if format_ else None


def memory_format(shape: Sequence[int], stride: Sequence[int] | None) -> str | None:
    """Return the layout of an image (N, C, H, W) or volume; stride None is contiguous. None for other tensors.

    A tensor with one channel, or of one pixel, fits either layout: it counts as contiguous.
    """
    if len(shape) not in (4, 5):
        return None
    if stride is None:
        return "contiguous"
    expected = 1
    for place in (1, *range(len(shape) - 1, 1, -1), 0):
        if shape[place] != 1 and stride[place] != expected:
            return "other"
        expected *= shape[place]
    return "channels_last" if len(shape) == 4 else "channels_last_3d"
