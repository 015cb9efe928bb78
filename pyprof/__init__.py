# SPDX-License-Identifier: Apache-2.0
"""PyProf: identity, origin and cost of every kernel of a PyTorch program.

Importing this package imports neither torch nor pandas: each public name is loaded when it is first used.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

from pyprof.core.registry import load_module

if TYPE_CHECKING:  # for editors and type checkers: the same names as in _HOME, which a test compares
    from pyprof import fleet as fleet
    from pyprof import nvtx as nvtx
    from pyprof.capture.collectors.layer import available as available
    from pyprof.capture.controller import init as init
    from pyprof.capture.controller import shutdown as shutdown
    from pyprof.capture.controller import start as start
    from pyprof.capture.controller import step as step
    from pyprof.capture.controller import stop as stop
    from pyprof.capture.flight import flight as flight
    from pyprof.capture.instrument.patch import wrap as wrap
    from pyprof.capture.instrument.user_ranges import annotate as annotate
    from pyprof.capture.loops import profiled as profiled
    from pyprof.capture.schedule import profile as profile
    from pyprof.core.errors import PyProfError as PyProfError
    from pyprof.core.model import Cost as Cost
    from pyprof.core.model import Tensor as Tensor
    from pyprof.costs.custom import cost as cost
    from pyprof.estimation.calls import estimate as estimate
    from pyprof.profiles import Profile as Profile
    from pyprof.profiles import load as load
    from pyprof.profiles import runs as runs

__version__ = "4.0.0"

# Public name -> module that defines it.
_HOME = {
    "init": "pyprof.capture.controller",
    "shutdown": "pyprof.capture.controller",
    "start": "pyprof.capture.controller",
    "stop": "pyprof.capture.controller",
    "step": "pyprof.capture.controller",
    "profile": "pyprof.capture.schedule",
    "profiled": "pyprof.capture.loops",
    "flight": "pyprof.capture.flight",
    "annotate": "pyprof.capture.instrument.user_ranges",
    "wrap": "pyprof.capture.instrument.patch",
    "available": "pyprof.capture.collectors.layer",
    "load": "pyprof.profiles",
    "runs": "pyprof.profiles",
    "Profile": "pyprof.profiles",
    "estimate": "pyprof.estimation.calls",
    "cost": "pyprof.costs.custom",
    "Cost": "pyprof.core.model",
    "Tensor": "pyprof.core.model",
    "PyProfError": "pyprof.core.errors",
    "fleet": "pyprof.fleet",
    "nvtx": "pyprof.nvtx",  # the original's pyprof.nvtx.init and pyprof.nvtx.wrap
}
__all__ = ["__version__", *_HOME]  # pyright: ignore[reportUnsupportedDunderAll]

if not TYPE_CHECKING:  # a checker that sees __getattr__ accepts any misspelled name

    def __getattr__(name: str) -> Any:
        home = _HOME.get(name)
        if home is None:
            raise AttributeError(f"module 'pyprof' has no attribute {name!r}")
        module = load_module(home)
        _proceed()
        return module if home == f"pyprof.{name}" else getattr(module, name)


def _proceed() -> None:
    """Start a recording requested by the environment, which could not begin while PyProf itself was being imported."""
    autostart = sys.modules.get("pyprof.capture.autostart")
    if autostart is not None:
        autostart.proceed()


def load_ipython_extension(shell: Any) -> None:
    """Add `%pyprof` and `%%pyprof` to a shell: IPython calls this for `%load_ext pyprof`."""
    load_module("pyprof.integrations.notebook").load(shell)


def __dir__() -> list[str]:
    return sorted(__all__)
