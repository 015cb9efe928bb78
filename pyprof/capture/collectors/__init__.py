# SPDX-License-Identifier: Apache-2.0
"""Collectors: what is recorded below Python. Each turns its source's records into columns after the window.

A collector has `start()`, `stop()` (its records so far are kept) and columns to read; it never raises into the
program that is recorded. Today there is one, torch's own profiler; a device collector adds its columns beside.
"""
