# SPDX-License-Identifier: Apache-2.0
"""Replace attributes of classes and modules, and restore them."""

from __future__ import annotations

import logging
from contextlib import ExitStack
from typing import Any

log = logging.getLogger(__name__)
_MISSING: Any = object()


class Registry:
    """Replaced attributes, restored in reverse order. An attribute that other code replaced afterwards is left
    alone."""

    def __init__(self) -> None:
        self._replaced: list[tuple[Any, str, Any, Any]] = []
        self._added: list[tuple[list[Any], Any]] = []

    def replace(self, owner: Any, name: str, new: Any) -> None:
        """Set an attribute and remember the previous entry of its owner's dictionary."""
        old = vars(owner).get(name, _MISSING)
        setattr(owner, name, new)
        self._replaced.append((owner, name, old, new))

    def add(self, items: list[Any], item: Any) -> None:
        """Append an item to a list, and remember it."""
        items.append(item)
        self._added.append((items, item))

    def undo(self) -> None:
        """Restore every attribute and list."""
        replaced, self._replaced = self._replaced, []
        added, self._added = self._added, []
        for items, item in added:
            if item in items:  # else other code has removed it
                items.remove(item)
        with ExitStack() as callbacks:  # each of them, even if another one raises
            for item in replaced:
                callbacks.callback(self._put_back, *item)

    @staticmethod
    def _put_back(owner: Any, name: str, old: Any, new: Any) -> None:
        if vars(owner).get(name, _MISSING) is not new:
            log.warning("%s.%s was replaced by other code and is left as it is", owner.__name__, name)
        elif old is _MISSING:
            delattr(owner, name)
        else:
            setattr(owner, name, old)
