# SPDX-License-Identifier: Apache-2.0
"""Rules about debugging switches that cost speed."""

from __future__ import annotations

from pyprof.rules import Finding, NeedsFacts, rule
from pyprof.rules.context import Run

_OFF = ("", "0", "no", "none", "off", "false")
# Fact, value (None: any value that switches it on), effect, how to switch it off, whether it needs a GPU.
_SWITCHES = (
    ("anomaly_mode", "yes", "anomaly mode checks every gradient", "torch.autograd.set_detect_anomaly(False)", False),
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


@rule("R34", "debug_left_on")
def debug_left_on(run: Run) -> Finding | None:
    """Switches for debugging, or for reproducible results, are on and cost time. How much is unknown without a run that
    has them off.

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
    return Finding(
        "",
        f"On in this run: {'; '.join(str(row['effect']) for row in on)}.",
        f"Unless intended: {'; '.join(str(row['off']) for row in on)}.",
        None,
        tuple(on),
        "The fact is off in the next recording, and a step is shorter.",
    )
