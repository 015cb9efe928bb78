# SPDX-License-Identifier: Apache-2.0
"""Collectors: what is recorded below Python. Each turns its source's records into columns after the window.

A collector has `start()`, `stop()` (its records so far are kept) and columns to read; it never raises into the
program that is recorded. `kineto` is torch's own profiler, for operators and, on a GPU, for device events; `cupti`
records device events itself, when it is asked to; `layer` chooses. `device` has the columns that both fill.
"""
