# SPDX-License-Identifier: Apache-2.0
"""What must be known before a rule may speak: premises, checked before the rule looks.

A rule names its premises in its decorator. Where one does not hold, its verdict is what it needs, and never a finding:
a statement about kernels of which nobody knows what they are would be a guess.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyprof.rules import NeedsFacts, Premise
from pyprof.rules.thresholds import limit
from pyprof.rules.wording import percent

if TYPE_CHECKING:
    from pyprof.rules.context import Run


def _gpu(run: Run) -> None:
    run.need_gpu()


def _launches(run: Run) -> None:
    run.need_launches()


def _steps(run: Run) -> None:
    run.need_steps()


def _kinds(run: Run) -> None:
    total = run.kernel_time
    known = int(run.kernels.loc[run.kernels["what"] != "other", "gpu"].sum())
    if total and known < limit("known") * total:
        raise NeedsFacts(
            f"needs to know what the kernels do, collectives above all: of {percent(1 - known / total)} of their time "
            "the names are in no table (report kernel_summary has them)"
        )


GPU = Premise("something ran on a GPU", _gpu)
LAUNCHES = Premise("the calls of the CUDA API are recorded", _launches)
STEPS = Premise("the recording is cut into iterations", _steps)
KINDS = Premise("the kind of nearly all kernels is known, by their time", _kinds)
