# SPDX-License-Identifier: Apache-2.0
"""Start of a profile of torch's own profiler (Kineto): its knowledge of GPUs, and its silence."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from pyprof.capture.core.torch_internals import look_up

OPERATORS = "operators"
ProfilerActivity, prepare, enable = (
    look_up(f"torch._C.{name}", OPERATORS)
    for name in ("_profiler.ProfilerActivity", "_autograd._prepare_profiler", "_autograd._enable_profiler")
)
# From torch 2.13 on the activities of the first profile in a process decide whether Kineto can ever record GPUs.
# The same torch has a filter that records nothing of them: then Kineto enables no CUPTI kind. Source of the names:
# kCpuTypes in torch/csrc/profiler/kineto_shim.cpp, those that do not belong to a GPU.
_FILTERS = "activity_filter" in (getattr(prepare, "__doc__", None) or "")
_OF_THE_CPU = {"CPU_OP", "CPU_INSTANT_EVENT", "USER_ANNOTATION", "PYTHON_FUNCTION"}
_LOG_LEVEL, _SILENT = "KINETO_LOG_LEVEL", "99"


def begin(config: Any, devices: bool, knows_gpus: bool) -> None:
    """Start a profile of operators, and with `devices` of GPU events.

    `knows_gpus`: there are GPUs, and a later profile in this process, including the program's own, may record them.
    """
    activities, filters = {ProfilerActivity.CPU}, {}
    if devices or (knows_gpus and _FILTERS):
        activities.add(ProfilerActivity.CUDA)
    if knows_gpus and _FILTERS and not devices:
        filters["activity_filter"] = {ProfilerActivity.CPU: _OF_THE_CPU, ProfilerActivity.CUDA: set[str]()}
    with _quiet():
        try:
            prepare(config, activities, **filters)
        except RuntimeError:  # names that this torch does not know
            if not filters:
                raise
            activities = {ProfilerActivity.CPU}
            prepare(config, activities)
    enable(config, activities)


@contextmanager
def _quiet() -> Iterator[None]:
    """Keep Kineto from printing two lines per window: it reads the variable once, in the first profile of a process."""
    if _LOG_LEVEL in os.environ:
        yield
        return
    os.environ[_LOG_LEVEL] = _SILENT
    try:
        yield
    finally:
        os.environ.pop(_LOG_LEVEL, None)
