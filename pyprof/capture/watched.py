# SPDX-License-Identifier: Apache-2.0
"""Functions of modules and methods of classes of which calls get a wrapper for the length of a window, as `patch.py`
does it for torch: nothing is replaced in a module, every other access gets the function itself.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable
from contextlib import suppress
from types import ModuleType
from typing import Any

import torch

from pyprof.capture.patch import _BYPASSED, _lookup, _Method

Function = Callable[..., Any]
Method = _Method  # a method: the original through the class, a bound wrapper through an instance


class Watched:
    """Functions of a module by name, and who is called instead. Of two of one module the last installed goes first."""

    def __init__(self, module: ModuleType, wrappers: dict[str, Function]):
        self._module, self._plain, namespace = module, type(module), vars(module)
        body: dict[str, Any] = {
            name: _lookup(namespace, name, namespace[name], wrapper) for name, wrapper in wrappers.items()
        }
        # What pickles functions by value (Dask, Ray, joblib) goes by the exact type of the modules that they use.
        body["__reduce_ex__"] = lambda self, protocol: (importlib.import_module, (self.__name__,))
        if _BYPASSED and self._plain.__getattribute__ is ModuleType.__getattribute__:  # else a frame too many
            body["__getattribute__"] = lambda self, name: ModuleType.__getattribute__(self, name)
        self._watched = type(self._plain.__name__, (self._plain,), body)

    def install(self) -> None:
        """Watch, if nobody else has changed the module meanwhile."""
        if type(self._module) is self._plain:
            self._module.__class__ = self._watched

    def remove(self) -> None:
        """Undo `install`."""
        if type(self._module) is self._watched:
            self._module.__class__ = self._plain


def uncompiled(function: Function) -> Function:
    """A wrapper that torch.compile leaves alone where it meets a call of it between two graphs."""
    with suppress(AttributeError):  # names that torch does not promise
        frames: Any = torch._C._dynamo.eval_frame
        action = frames._FrameAction
        strategy = frames._FrameExecStrategy(action.SKIP, action.DEFAULT)  # this one; not those that it calls
        frames.set_code_exec_strategy(function.__code__, strategy)
    return function
