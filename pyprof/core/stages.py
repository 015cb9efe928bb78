# SPDX-License-Identifier: Apache-2.0
"""Messages of a command while it works, on stderr: lines with the time, and a progress bar for stages over a second."""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from pyprof.core.frame import say
from pyprof.core.terminal import visible

QUIET, MINIMAL, NORMAL, DETAILED, DIAGNOSTIC = range(5)
_PATIENCE = 1.0  # seconds before the progress bar appears


class Stages:
    """Output according to the level of verbosity. `progress` is for the terminal only: a log has the lines."""

    def __init__(self, level: int = NORMAL, name: str = "dlprof"):
        self.level, self._name = level, name
        self._bar: Any = None
        self._lock = threading.Lock()

    def say(self, level: int, text: str) -> None:
        """Print a line with the time."""
        if self.level >= level:
            print(f"[{self._name} {time.strftime('%H:%M:%S')}] {visible(text)}", file=sys.stderr, flush=True)

    def note(self, text: str) -> None:
        """Print a line for the user at the terminal, except at quiet."""
        if self.level > QUIET:
            say(self._name, text)

    @contextmanager
    def stage(self, text: str, level: int = NORMAL) -> Iterator[None]:
        """Announce work that may take a while, from a level of verbosity on."""
        self.say(level, text)
        start = time.perf_counter()
        timer = threading.Timer(_PATIENCE, self._show, (text,))
        timer.daemon = True
        if self.level > QUIET and sys.stderr.isatty():
            timer.start()
        try:
            yield
        finally:
            timer.cancel()
            with self._lock:
                bar, self._bar = self._bar, False  # False: a late timer shows nothing
            if bar:
                bar.stop()
            self._bar = None
        self.say(DIAGNOSTIC, f"{text} took {time.perf_counter() - start:.2f} s")

    def progress(self, what: str, share: float) -> None:
        """Show the progress of the stage, between 0 and 1."""
        with self._lock:
            if self._bar:
                self._bar.update(self._bar.task_ids[0], description=what, completed=share)

    def _show(self, text: str) -> None:
        from rich.console import Console
        from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

        with self._lock:
            if self._bar is None:
                columns = (TextColumn("{task.description}"), BarColumn(), TimeElapsedColumn())
                self._bar = Progress(*columns, console=Console(stderr=True), transient=True)
                self._bar.add_task(text, total=1.0)
                self._bar.start()
