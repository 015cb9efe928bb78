# SPDX-License-Identifier: Apache-2.0
"""Capture: what a PyTorch program does, recorded inside its process. The only package that imports torch.

Three layers, joined by thread and time: call sites (`patch`, `modules`, `stacks`), operators (`collectors.kineto`),
device records (`collectors.layer`; none on a machine without a GPU). `window` says when, `session` gathers, `resolve`
joins, `writer` writes, `run` runs a script.
"""

DEFAULT_MAX_EVENTS = 1_000_000  # operators, calls and ranges that one recording keeps
THREAD = "pyprof"  # name of each of our threads
COLLECTORS = ("auto", "kineto", "cupti", "none")  # who records the GPU
