# SPDX-License-Identifier: Apache-2.0
"""A registry that decorators fill, and the loader of open folders.

An open folder is a package whose modules register something when they are imported (cost formulas, trace
formats). Adding a file is the only step: `load_folder` imports every module that is there.

>>> shapes = Registry("shape")
>>> @shapes.register("square")
... def square(): return 4
>>> shapes["square"]()
4
"""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Callable, Iterator, Mapping
from types import ModuleType
from typing import Generic, TypeVar

from pyprof.errors import CaptureError

T = TypeVar("T")


class Registry(Mapping[str, T], Generic[T]):
    """Names and what is registered under them. A name registered twice is an error: one of the two would be dead."""

    def __init__(self, what: str):
        self._what = what
        self._items: dict[str, T] = {}

    def register(self, *names: str) -> Callable[[T], T]:
        """Decorator: register the decorated object under each name. Raises ValueError for a name that is taken."""

        def add(item: T) -> T:
            for name in names:
                if name in self._items:
                    raise ValueError(f"{self._what} {name!r} is registered twice")
                self._items[name] = item
            return item

        return add

    def remove(self, name: str) -> None:
        """Take a name out, for one that is to be registered anew."""
        del self._items[name]

    def __getitem__(self, name: str) -> T:
        return self._items[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._items)

    def __len__(self) -> int:
        return len(self._items)


def load_folder(package: str) -> None:
    """Import every module of a package, in alphabetical order."""
    paths = importlib.import_module(package).__path__
    for info in sorted(pkgutil.iter_modules(paths), key=lambda info: info.name):
        if info.name != "__main__":
            importlib.import_module(f"{package}.{info.name}")


def load_module(name: str) -> ModuleType:
    """Import one of our modules that needs torch; CaptureError, one sentence, where there is none."""
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        if error.name != "torch":
            raise
        raise CaptureError(
            "PyProf records PyTorch programs, and this Python has no torch: install it, or run the Python that has it."
        ) from None
