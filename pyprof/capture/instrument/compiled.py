# SPDX-License-Identifier: Apache-2.0
"""Compiled path of a recorded call, `_compiled.c`: used if it is built, unless PYPROF_PURE is set.

It makes recording cheaper and changes nothing that is recorded; a machine without a C compiler uses the same in
Python (`wrappers.recording`, `lookups.py`).
"""

from __future__ import annotations

import importlib
import os
from collections.abc import Callable, Mapping
from typing import Any

import torch

from pyprof.capture.core.internal_errors import from_handler
from pyprof.capture.core.state import Until, owned
from pyprof.capture.core.torch_internals import is_tracing, look_up
from pyprof.capture.instrument import recorder as records
from pyprof.capture.instrument.arguments import Key, Traced, key_of, symbolic
from pyprof.capture.instrument.recorder import Recorder, local, recorder
from pyprof.capture.instrument.stacks import CALL_IMPL
from pyprof.capture.instrument.wrappers import at_bound, hide_from_warnings

Function = Callable[..., Any]


def _load() -> Any:
    if os.environ.get("PYPROF_PURE", "") not in ("", "0"):
        return None
    try:
        return importlib.import_module("pyprof.capture._compiled")
    except ImportError:  # not built, or for another Python
        return None


def _through(function: Function, /, *args: Any, **kwargs: Any) -> Any:
    return function(*args, **kwargs)


_through.__code__ = hide_from_warnings(_through.__code__)
_module = _load()
_exchange = look_up("torch.Tensor.__dlpack_c_exchange_api__", "")


def collector_callback(function: Function) -> Function:
    """Wrap a function for `gc.callbacks`, whose errors Python prints and forgets: a handler's is raised after the
    collection. Without the compiled path, or with one that was built before, return the function itself."""
    wrap = getattr(_module, "collector_callback", None)
    return function if wrap is None else wrap(function)


def watch(of: Recorder, threads: Any) -> Any:
    """Return the shared state of a recorder's compiled wrappers; None without them."""
    if _module is None:
        return None
    try:
        return _module.Watch(
            recorder=of, local=threads, tracing=is_tracing, site=of.stacks.site, describe=_describe(of),
            at_bound=at_bound, drop=of.drop, from_handler=from_handler, through=_through, tensor=torch.Tensor,
            parameter=torch.nn.Parameter, size=torch.Size, dtype=torch.dtype, frame_end=CALL_IMPL, exchange=_exchange,
            sample=torch.empty(2, 3, dtype=torch.float32, device="cpu").t(),
        )  # fmt: skip
    except (AttributeError, TypeError, RuntimeError):
        return None


def _describe(of: Recorder) -> Callable[[tuple[Any, ...], Mapping[str, Any]], int | None]:
    keys = of.keys

    def describe(args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> int | None:
        """Return the number of some arguments; None if the call computes nothing and is not recorded."""
        key: Key = ()
        try:
            key = key_of(args, kwargs)
            number = keys.get(key)
            return of.describe(key) if number is None else number
        except Traced:
            return None
        except TypeError:
            if symbolic(key):
                return None
            raise

    return describe


WATCH = owned(watch(recorder, local), Until.WRITTEN, lambda _: forget())


# The following require a `watch`.


def call(original: Function, number: int, watch: Any = WATCH) -> Function:
    """Return a wrapper like `wrappers.recording`, for one place where `original` is called immediately."""
    wrapper: Function = _module.Call(watch, original, number)
    return wrapper


def function(
    names: Mapping[str, Any], name: str, original: Function, absent: Any, make: Function, watch: Any = WATCH
) -> Any:
    """Return the getter of the property of a module's function: see `lookups.function`."""
    return _module.Function(watch, names, name, original, absent, make)


def method(original: Any, make: Function) -> Any:
    """Return the descriptor of a method of a class: see `lookups.Method`."""
    return _module.Method(WATCH, original, make)


def getattribute() -> Any:
    """Return `__getattribute__` for a subclass of a module class, without a Python frame."""
    return _module.getattribute


def forget() -> None:
    """Forget the numbers of sites and arguments."""
    if WATCH is not None:
        WATCH.forget()


def forked() -> None:
    """Replace the thread's state in a forked child."""
    records.forked()
    if _module is not None:
        _module.forked()
