# SPDX-License-Identifier: Apache-2.0
"""A progress bar in a notebook, for work that takes longer than a second; it disappears when the work is done."""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from html import escape
from typing import Any

_PATIENCE = 1.0  # seconds before the bar appears
_PAUSE = 0.2  # seconds between two changes of it


def shell() -> Any:
    """Return the IPython shell that this program runs in, or None. IPython is never imported here."""
    return getattr(sys.modules.get("IPython"), "get_ipython", lambda: None)()


def in_notebook() -> bool:
    """Return whether outputs of this program are shown by a notebook, which has HTML."""
    return getattr(shell(), "kernel", None) is not None


class Progress:
    """The function that a profile calls with a stage and the share of it that is done."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._html = ""
        self._last = 0.0
        self._handle: Any = None
        self._timer: threading.Timer | None = None

    def __call__(self, what: str, share: float) -> None:
        bar = f'<progress max="1" value="{min(max(share, 0), 1):.3f}"></progress> {100 * share:.0f} %'
        with self._lock:
            self._html = f'<div class="pyprof-progress">PyProf: {escape(what)} {bar}</div>'
            if share >= 1:
                self._hide()
            elif self._handle is None and self._timer is None:
                self._timer = threading.Timer(_PATIENCE, self._appear)
                self._timer.daemon = True
                self._timer.start()
            elif self._handle is not None and time.monotonic() - self._last >= _PAUSE:
                self._show()

    def hide(self) -> None:
        """Remove the bar until the next call."""
        with self._lock:
            self._hide()

    def _appear(self) -> None:
        with self._lock:
            if self._timer is not None:
                self._show()

    def _show(self) -> None:
        from IPython.display import HTML, display

        self._last = time.monotonic()
        content = HTML(self._html)  # type: ignore[no-untyped-call]
        if self._handle is None:
            self._handle = display(content, display_id=True)  # type: ignore[no-untyped-call]
        else:
            self._handle.update(content)

    def _hide(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        if self._handle is not None:
            self._html = ""
            self._show()
        self._timer = self._handle = None


@contextmanager
def bar() -> Iterator[Progress | None]:
    """Give a bar for some work, None outside of notebooks."""
    progress = Progress() if in_notebook() else None
    try:
        yield progress
    finally:
        if progress is not None:
            progress.hide()
