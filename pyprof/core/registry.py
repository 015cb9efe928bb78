# SPDX-License-Identifier: Apache-2.0
"""A registry that decorators fill, and the loader of open folders.

An open folder is a package whose modules register something when they are imported (cost formulas, trace
formats). Adding a file is the only step: `load_folder` imports every module in it, and those that other
packages declare in an entry point group: `pyprof.formats`, `pyprof.reports`, `pyprof.rules`, `pyprof.costs`.

>>> shapes = Registry("shape")
>>> @shapes.register("square")
... def square(): return 4
>>> shapes["square"]()
4
"""

from __future__ import annotations

import importlib
import logging
import pkgutil
import re
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Generic, TypeVar

from pyprof.core.errors import CaptureError

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint

log = logging.getLogger(__name__)
T = TypeVar("T")


class Registry(Mapping[str, T], Generic[T]):
    """Items by registered name. Registering a name twice is an error: one of the two would be dead."""

    def __init__(self, what: str):
        self._what = what
        self._items: dict[str, T] = {}

    def register(self, *names: str) -> Callable[[T], T]:
        """Return a decorator that registers an object under each name. Raises ValueError for a name in use."""

        def add(item: T) -> T:
            for name in names:
                if name in self._items:
                    raise ValueError(f"{self._what} {name!r} is registered twice")
                self._items[name] = item
            return item

        return add

    def remove(self, name: str) -> None:
        """Remove a name, so that it can be registered again."""
        del self._items[name]

    def __getitem__(self, name: str) -> T:
        return self._items[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._items)

    def __len__(self) -> int:
        return len(self._items)


def load_folder(package: str, group: str = "") -> None:
    """Import every module of a package, in alphabetical order, then the entry points of a group."""
    paths = importlib.import_module(package).__path__
    for info in sorted(pkgutil.iter_modules(paths), key=lambda info: info.name):
        if info.name != "__main__":
            importlib.import_module(f"{package}.{info.name}")
    if group:
        _load_extensions(group)


def declared(package: str, pattern: str) -> list[tuple[str, ...]]:
    """Return the matches of a pattern's groups in the sources of a package or module, in the order of file names.

    --help lists registered items this way without importing them, which takes pandas and half a second. Texts of
    Python in the source have to be plain literals; a test compares each list with its registry.
    """
    spec = find_spec(package)
    if spec is None or spec.origin is None:
        return []
    folder = spec.submodule_search_locations
    paths = sorted(Path(folder[0]).glob("*.py")) if folder else [Path(spec.origin)]
    expression = re.compile(pattern, re.DOTALL)
    return [match.groups() for path in paths for match in expression.finditer(path.read_text("utf-8"))]


def extensions(group: str) -> dict[str, EntryPoint]:
    """Return the entry points of a group, such as `pyprof.reports`, in installed packages, by name."""
    points = (point for place in _extended() for point in _entry_points(place) if point.group == group)
    return {point.name: point for point in sorted(points, key=lambda point: point.name)}


@cache
def _load_extensions(group: str) -> None:
    """Import the extensions of a group from installed packages: their decorators register them. A failing one is
    skipped."""
    for point in extensions(group).values():
        try:
            point.load()
        except Exception as error:
            package = point.dist.name if point.dist else point.value
            log.warning("%s of %s is skipped: %s: %s", point.name, package, type(error).__name__, error)


@cache
def _extended() -> tuple[Path, ...]:
    """Return the metadata folders of packages that extend PyProf. Using importlib.metadata takes 20 times as long."""
    folders = (Path(folder or ".") for folder in sys.path)
    files = (path for folder in folders for path in sorted(folder.glob("*-info/entry_points.txt")))
    return tuple(path.parent for path in files if "[pyprof." in path.read_text("utf-8", "replace"))


def _entry_points(place: Path) -> Iterable[EntryPoint]:
    from importlib.metadata import PathDistribution

    return PathDistribution(place).entry_points


def load_module(name: str) -> ModuleType:
    """Import a module of PyProf that needs torch. Raises CaptureError if torch is missing."""
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        if error.name != "torch":
            raise
        raise CaptureError(
            "PyProf records PyTorch programs, and this Python has no torch: install it, or use a Python that has it."
        ) from None
