# SPDX-License-Identifier: Apache-2.0
"""Reference pages of docs/, generated from the code. Open folder: a module here with a function decorated by `page`.

python -m pyprof.reference            list the pages
python -m pyprof.reference reports    print docs/reports.md, with the reports of installed extensions
"""

from __future__ import annotations

from collections.abc import Callable

from pyprof.core.registry import Registry, load_folder

PAGES: Registry[Callable[[], str]] = Registry("page")


def page(name: str) -> Callable[[Callable[[], str]], Callable[[], str]]:
    """Register the decorated function as the source of docs/NAME.md: it returns Markdown."""
    return PAGES.register(name)


def pages() -> dict[str, Callable[[], str]]:
    """Return the functions of all pages by name."""
    load_folder(__name__)
    return {name: PAGES[name] for name in sorted(PAGES)}
