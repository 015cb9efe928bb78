# SPDX-License-Identifier: Apache-2.0
"""Functions of modules whose calls get a wrapper for the length of a window, as `patch.py` does for torch: nothing is
replaced in a module, every other access gets the function itself.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable
from types import ModuleType
from typing import Any

from pyprof.capture.instrument.lookups import function, getattribute, where_called

Function = Callable[..., Any]


class Watched:
    """Functions of a module by name, each with its wrapper. If a module is watched twice, the last one installed goes
    first."""

    def __init__(self, module: ModuleType, wrappers: dict[str, Function]):
        self._module, self._plain, namespace = module, type(module), vars(module)
        body: dict[str, Any] = {
            name: function(namespace, name, namespace[name], where_called(wrapper))
            for name, wrapper in wrappers.items()
        }
        # Code that pickles functions by value (Dask, Ray, joblib) checks the exact type of the modules that they use.
        body["__reduce_ex__"] = lambda self, protocol: (importlib.import_module, (self.__name__,))
        if self._plain.__getattribute__ is ModuleType.__getattribute__:  # else there would be one frame too many
            body.update(getattribute(ModuleType))
        self._watched = type(self._plain.__name__, (self._plain,), body)

    def install(self) -> None:
        """Watch the module, unless other code has changed its class in the meantime."""
        if type(self._module) is self._plain:
            self._module.__class__ = self._watched

    def remove(self) -> None:
        """Undo `install`."""
        if type(self._module) is self._watched:
            self._module.__class__ = self._plain
