# SPDX-License-Identifier: Apache-2.0
"""Functions of modules and methods of classes of which calls get a wrapper for the length of a window, as `patch.py`
does it for torch: nothing is replaced in a module, every other access gets the function itself.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable
from types import ModuleType
from typing import Any

from pyprof.capture.instrument.lookups import function, getattribute, where_called

Function = Callable[..., Any]


class Watched:
    """Functions of a module by name, and who is called instead. Of two of one module the last installed goes first."""

    def __init__(self, module: ModuleType, wrappers: dict[str, Function]):
        self._module, self._plain, namespace = module, type(module), vars(module)
        body: dict[str, Any] = {
            name: function(namespace, name, namespace[name], where_called(wrapper))
            for name, wrapper in wrappers.items()
        }
        # What pickles functions by value (Dask, Ray, joblib) goes by the exact type of the modules that they use.
        body["__reduce_ex__"] = lambda self, protocol: (importlib.import_module, (self.__name__,))
        if self._plain.__getattribute__ is ModuleType.__getattribute__:  # else a frame too many
            body.update(getattribute(ModuleType))
        self._watched = type(self._plain.__name__, (self._plain,), body)

    def install(self) -> None:
        """Watch, if nobody else has changed the module meanwhile."""
        if type(self._module) is self._plain:
            self._module.__class__ = self._watched

    def remove(self) -> None:
        """Undo `install`."""
        if type(self._module) is self._watched:
            self._module.__class__ = self._plain
