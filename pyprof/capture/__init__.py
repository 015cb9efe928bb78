# SPDX-License-Identifier: Apache-2.0
"""Capture: recording of a PyTorch program inside its process. The only package that imports torch.

Three layers, joined by thread and time: call sites (`instrument`), operators (`collectors.kineto`), device records
(`collectors.layer`; none on a machine without a GPU). `controller` opens and closes windows, `session` collects,
`output.merge_calls` joins, `output.capture_file` writes, `run` runs a script.
"""

DEFAULT_MAX_EVENTS = 1_000_000  # operators, calls and ranges that one recording keeps
THREAD = "pyprof"  # name of PyProf's threads
COLLECTORS = ("auto", "kineto", "cupti", "none")  # collectors of GPU events
