# SPDX-License-Identifier: Apache-2.0
"""The recording of `pyprof view --demo`, which scripts/make_demo.py generates: no program ran."""

from pathlib import Path

RECORDING = Path(__file__).resolve().with_name("generated_demo.pt.trace.json.gz")
NOTICE = "This is a generated example: no program ran, and its times were computed, not measured."
