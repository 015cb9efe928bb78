# SPDX-License-Identifier: Apache-2.0
"""Rules about debugging switches that cost speed."""

from __future__ import annotations

import numpy as np

from pyprof.core.model import BPROP
from pyprof.facts.device.timeline import Excerpt
from pyprof.rules import Finding, NeedsFacts, rule
from pyprof.rules.context import Run
from pyprof.rules.graphs import Nodes

_OFF = ("", "0", "no", "none", "off", "false")
# Fact, value (None: any value that switches it on), effect, how to switch it off, whether it needs a GPU.
_SWITCHES = (
    ("anomaly_mode", "yes", "anomaly mode checks every gradient and keeps a stack for each node",
     "torch.autograd.set_detect_anomaly(False)", False),
    ("deterministic", "yes", "deterministic algorithms only", "torch.use_deterministic_algorithms(False)", False),
    ("cudnn.deterministic", "yes", "cuDNN's deterministic algorithms only",
     "torch.backends.cudnn.deterministic = False", True),
    ("switch.CUDA_LAUNCH_BLOCKING", None, "every launch waits for its kernel", "unset CUDA_LAUNCH_BLOCKING", True),
    ("switch.PYTORCH_NO_CUDA_MEMORY_CACHING", None, "every tensor allocates new memory",
     "unset PYTORCH_NO_CUDA_MEMORY_CACHING", True),
    ("switch.TORCH_DISTRIBUTED_DEBUG", "DETAIL", "every collective is checked on all ranks",
     "unset TORCH_DISTRIBUTED_DEBUG", False),
    ("switch.NCCL_P2P_DISABLE", None, "GPUs exchange data through the host's memory", "unset NCCL_P2P_DISABLE", True),
    ("cudnn.enabled", "no", "cuDNN is not used", "torch.backends.cudnn.enabled = True", True),
)  # fmt: skip


# What anomaly mode runs on each gradient: isnan(gradient).any().item().
_CHECKS = ("isnan", "ne", "_is_any_true", "any", "is_nonzero", "item", "_local_scalar_dense")


@rule("R34", "debug_left_on")
def debug_left_on(run: Run) -> Finding | None:
    """Switches for debugging, or for reproducible results, are on and cost time. How much is unknown without a run that
    has them off. But without a GPU anomaly mode shows: it looks for NaN in each gradient, and formats a Python stack
    for each node of the graph, before the operator that makes it calls the next one.

    Fires: torch.autograd.set_detect_anomaly(True); CUDA_LAUNCH_BLOCKING=1.
    Silent: neither; CUDA_LAUNCH_BLOCKING=0; CUDA's switches in a run without a GPU.
    """
    if "anomaly_mode" not in run.facts:
        raise NeedsFacts("needs torch's switches, which this recording lacks; record with pyprof")
    on: list[dict[str, object]] = []
    for name, value, what, remedy, gpu in _SWITCHES:
        text = run.facts.get(name, "")
        switched = text.upper() == value.upper() if value is not None else text.lower() not in _OFF
        if switched and (run.used or not gpu):
            on.append({"switch": name, "value": text, "effect": what, "off": remedy})
    if not on:
        return None
    saving = _anomaly(run) if run.on_cpu and run.cut and on[0]["switch"] == "anomaly_mode" else None
    return run.finding(
        f"On in this run: {'; '.join(str(row['effect']) for row in on)}.",
        f"Unless intended: {'; '.join(str(row['off']) for row in on)}.",
        saving or None,
        on,
        "The fact is off in the next recording, and a step is shorter.",
    )


def _anomaly(run: Run) -> int:
    """Return what anomaly mode takes of the time: its checks, and a stack for each node of the graph."""
    events = run.operator_events
    checks = events["kernel"].isin([f"aten::{name}" for name in _CHECKS]) & (events["direction"] == BPROP)
    stacks = sum(_stacks(run, excerpt) for excerpt in run.excerpts)
    return run.per_worker(events["gpu_ns"][checks].sum() + stacks)


def _stacks(run: Run, excerpt: Excerpt) -> int:
    """Return what the stacks of an excerpt's nodes took: for each the median time from the start of operators that make
    nodes to that of the first operator in them."""
    nodes = Nodes(run, excerpt)
    start, own = (excerpt.operator_event[name].values for name in ("start_ns", "duration_ns"))
    before = np.diff(start, append=start[-1:])
    calls = np.isin(start, nodes.start[nodes.count > 0]) & (before > 0) & (before < own)
    return int(nodes.count.sum() * np.median(before[calls])) if calls.any() else 0
