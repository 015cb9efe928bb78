# SPDX-License-Identifier: Apache-2.0
"""Start torch's own profiler (Kineto), without its lines on stderr and so that later profiles can record GPUs."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from pyprof.capture.core.torch_internals import look_up

OPERATORS = "operators"  # what a recording lacks without these names of torch
ProfilerActivity, prepare, enable = (
    look_up(f"torch._C.{name}", OPERATORS)
    for name in ("_profiler.ProfilerActivity", "_autograd._prepare_profiler", "_autograd._enable_profiler")
)
# From torch 2.13 on, Kineto can record GPUs in a process only if the first profile in it has the activity CUDA. From
# the same version on a filter can select no type of that activity: Kineto knows the GPUs then, but records none.
_HAS_FILTER = "activity_filter" in (getattr(prepare, "__doc__", None) or "")
# Those of kCpuTypes in torch/csrc/profiler/kineto_shim.cpp that do not belong to a GPU.
_CPU_TYPES = {"CPU_OP", "CPU_INSTANT_EVENT", "USER_ANNOTATION", "PYTHON_FUNCTION"}
_LOG_LEVEL, _SILENT = "KINETO_LOG_LEVEL", "99"  # above all levels


def begin(config: Any, devices: bool, knows_gpus: bool) -> None:
    """Start a profile of operators and, with `devices`, of GPU events. Raises RuntimeError if torch refuses.

    `knows_gpus`: there are GPUs, and a later profile in this process, including the program's own, may record them.
    """
    activities, filters = {ProfilerActivity.CPU}, {}
    if devices or (knows_gpus and _HAS_FILTER):
        activities.add(ProfilerActivity.CUDA)
    if knows_gpus and _HAS_FILTER and not devices:
        filters["activity_filter"] = {ProfilerActivity.CPU: _CPU_TYPES, ProfilerActivity.CUDA: set[str]()}
    with _no_log():
        try:
            prepare(config, activities, **filters)
        except RuntimeError:  # this torch has other names of types
            if not filters:
                raise
            activities = {ProfilerActivity.CPU}
            prepare(config, activities)
    enable(config, activities)


@contextmanager
def _no_log() -> Iterator[None]:
    """Keep Kineto from printing two lines per window: it reads the variable once, in the first profile of a process."""
    if _LOG_LEVEL in os.environ:
        yield
        return
    os.environ[_LOG_LEVEL] = _SILENT
    try:
        yield
    finally:
        os.environ.pop(_LOG_LEVEL, None)
