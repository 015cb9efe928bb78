# SPDX-License-Identifier: Apache-2.0
"""The original's spelling: `import pyprof.nvtx; pyprof.nvtx.init()`, `pyprof.nvtx.wrap(module, "function")`."""

from pyprof.capture.patch import wrap
from pyprof.capture.window import init

__all__ = ["init", "wrap"]
