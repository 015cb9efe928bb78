# SPDX-License-Identifier: Apache-2.0
"""PyProf: what every kernel of a PyTorch program is, where it comes from, and what it costs.

Importing this package imports neither torch nor pandas: each public name is loaded when it is first used.
"""

from __future__ import annotations

import sys
from typing import Any

from pyprof.registry import load_module

__version__ = "4.0.0"

# Public name -> module that defines it.
_HOME = {
    "init": "pyprof.capture.window",
    "shutdown": "pyprof.capture.window",
    "start": "pyprof.capture.window",
    "stop": "pyprof.capture.window",
    "step": "pyprof.capture.window",
    "profile": "pyprof.capture.schedule",
    "flight": "pyprof.capture.flight",
    "annotate": "pyprof.capture.annotate",
    "wrap": "pyprof.capture.patch",
    "available": "pyprof.capture.collectors.layer",
    "load": "pyprof.session",
    "runs": "pyprof.session",
    "estimate": "pyprof.estimating",
    "cost": "pyprof.prof.custom",
    "Cost": "pyprof.model",
    "Tensor": "pyprof.model",
    "PyProfError": "pyprof.errors",
}
# Where it has another name there.
_INSIDE = {"cost": "formula"}

__all__ = ["__version__", *_HOME]


def __getattr__(name: str) -> Any:
    if name == "nvtx":  # the original's pyprof.nvtx.init and pyprof.nvtx.wrap
        module = load_module("pyprof.nvtx")
        _proceed()
        return module
    home = _HOME.get(name)
    if home is None:
        raise AttributeError(f"module 'pyprof' has no attribute {name!r}")
    module = load_module(home)
    _proceed()
    return getattr(module, _INSIDE.get(name, name))


def _proceed() -> None:
    """A recording that the environment starts could not begin in the middle of our own imports."""
    autostart = sys.modules.get("pyprof.autostart")
    if autostart is not None:
        autostart.proceed()


def __dir__() -> list[str]:
    return sorted(__all__)
