# SPDX-License-Identifier: Apache-2.0
"""The programs are collected only where their libraries are: `make test-programs`."""

from __future__ import annotations

import importlib.util

collect_ignore = [] if importlib.util.find_spec("torchrec") else ["test_programs.py"]
