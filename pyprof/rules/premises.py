# SPDX-License-Identifier: Apache-2.0
"""Premises: data that must be known before a rule is evaluated.

A rule names its premises in its decorator. If one does not hold, the verdict is the missing data, never a finding: a
statement about kernels of unknown kind would be a guess.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyprof.core.units import percent
from pyprof.rules import NeedsFacts, Premise
from pyprof.rules.thresholds import limit

if TYPE_CHECKING:
    from pyprof.rules.context import Run


def _gpu(run: Run) -> None:
    run.need_gpu()


def _launches(run: Run) -> None:
    run.need_launches()


def _launches_if_any(run: Run) -> None:
    if not run.on_cpu:
        run.need_launches()


def _steps(run: Run) -> None:
    run.need_steps()


def _kinds(run: Run) -> None:
    total = run.kernel_time
    known = int(run.kernels.loc[run.kernels["what"] != "other", "gpu_ns"].sum())
    if total and known < limit("known") * total:
        raise NeedsFacts(
            f"needs the kinds of the kernels, collectives above all: kernels with {percent(1 - known / total)} of the "
            "time have unknown names (see report kernel_summary)"
        )


GPU = Premise("something ran on a GPU", _gpu)
LAUNCHES = Premise("the calls of the CUDA API are recorded", _launches)
LAUNCHES_IF_ANY = Premise(
    "if something ran on a GPU, the calls of the CUDA API are recorded", _launches_if_any
)
STEPS = Premise("the recording is cut into iterations", _steps)
KINDS = Premise("the kind of nearly all kernels is known, by their time", _kinds)
