# SPDX-License-Identifier: Apache-2.0
"""Start without a call of `init`: `pyprof.capture.autostart` calls it once torch is imported."""

from __future__ import annotations

import multiprocessing.util

from pyprof.capture import controller
from pyprof.capture.controller import Control, control
from pyprof.capture.environment import ranks
from pyprof.capture.process.faults import guarded


def begin() -> None:
    """Apply the environment's settings in this process and in ranks that multiprocessing starts from it.

    A child of multiprocessing gets here while it imports the script again, or is forked. It counts as a process of
    its own once multiprocessing has set up its identity.
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
