# SPDX-License-Identifier: Apache-2.0
"""Collectors: sources of records below Python. Each turns its source's records into columns after the window.

A collector has `start()`, `stop()` (which keeps its records) and columns to read; it never raises into the
recorded program. `kineto` is torch's own profiler, for operators and, on a GPU, for device events; `cupti`
records device events itself, on request; `layer` chooses. `device` has the columns that both fill.
"""
