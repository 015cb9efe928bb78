# SPDX-License-Identifier: Apache-2.0
"""A process in which nobody calls `init`: `pyprof.autostart` does, once torch is imported."""

from __future__ import annotations

import multiprocessing.util

from pyprof.capture import controller
from pyprof.capture.controller import Control, control
from pyprof.capture.environment import ranks
from pyprof.capture.process.faults import guarded


def begin() -> None:
    """Do what the environment says, in this process and in ranks that multiprocessing starts from it.

    A child of multiprocessing comes here while it imports the script again, or is forked. It is a process of its own
    from the moment at which multiprocessing has told it what it is.
    """
    control.automatic = control.recorded = True
    multiprocessing.util.register_after_fork(control, _begin_in_child)
    if ranks.imports_script():
        ranks.when_imported(lambda: _begin_in_child(control))
    else:
        controller.init()


def _begin_in_child(_: Control) -> None:
    if not ranks.is_helper():
        guarded(controller.init)
