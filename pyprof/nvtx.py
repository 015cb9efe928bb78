# SPDX-License-Identifier: Apache-2.0
"""Spelling of the original: `import pyprof.nvtx; pyprof.nvtx.init()`, `pyprof.nvtx.wrap(module, "function")`."""

from pyprof.capture.controller import init
from pyprof.capture.instrument.patch import wrap

__all__ = ["init", "wrap"]
