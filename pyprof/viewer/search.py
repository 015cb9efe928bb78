# SPDX-License-Identifier: Apache-2.0
"""Search: operators of any spelling, kernels, modules and source lines that contain a text.

Only tables of names are read, which are small however long the recording is. Case, punctuation and underscores do not
matter: `convolution_backward` finds aten::convolution_backward, CudnnConvolutionBackward and CONVOLUTION_BACKWARD_3.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

from pyprof.analysis.source import Source
from pyprof.reports.operator_queries import SELECTED
from pyprof.store.kinds import ON_GPU
from pyprof.viewer import models

_MOST = 6  # hits of a kind
_LOOSE = re.compile(r"[\W_]+")
# Names of the dispatcher and of autograd among the texts of ranges.
_DISPATCHED = re.compile(r"[a-z_0-9]+::\w[\w.]*|\w+Backward\d*|autograd::engine::evaluate_function: (\w+)")


def plain(text: str) -> str:
    """Return a text without case, punctuation and underscores.

    >>> plain("aten::convolution_backward"), plain("CONVOLUTION_BACKWARD_3")
    ('atenconvolutionbackward', 'convolutionbackward3')
    """
    return _LOOSE.sub("", text.casefold())


def find_names(source: Source, text: str) -> list[models.Hit]:
    """Return the hits by kind, of each kind the first by time."""
    needle = plain(text)
    if not needle:
        return []
    parameters = {"aggregation": source.aggregation.id, "worker": source.worker}
    rows = source.store.rows

    def matching(names: Sequence[tuple[Any, ...]]) -> list[tuple[Any, ...]]:
        """Return rows with a text before their id and time that matches, the longest time first."""
        hits = [row for row in names if any(part and needle in plain(part) for part in row[:-1])]
        return sorted(hits, key=lambda row: -(row[-1] or 0))[:_MOST]

    operators = rows(
        f"""select o.name, o.op_id, sum(max(s.gpu_ns, s.cpu_ns)) from op_stat s join operator o on o.id = s.operator
            where {SELECTED} group by o.id""",
        parameters,
    )
    kernels = rows(
        f"""select k.name, sum(s.gpu_ns) from op_kernel_stat s join kernel_name k on k.id = s.name
            where {SELECTED} and s.{ON_GPU} group by k.id""",
        parameters,
    )
    modules = rows(
        f"""select o.module, sum(max(s.gpu_ns, s.cpu_ns)) from op_stat s join operator o on o.id = s.operator
            where {SELECTED} and o.module is not null group by o.module""",
        parameters,
    )
    times: dict[str, int] = {}
    for frames, time in rows(
        f"""select k.frames, sum(max(s.gpu_ns, s.cpu_ns)) from op_stat s join operator o on o.id = s.operator
            join stack k on k.id = o.stack where {SELECTED} group by k.id""",
        parameters,
    ):
        for line in {*frames.split("\n")} - {""}:
            times[line] = times.get(line, 0) + (time or 0)
    short = rows(
        "select text, 0 from string where length(text) < 200 and text not like '{%'"
    )  # no arguments of calls
    dispatched = [row for row in short if _DISPATCHED.fullmatch(row[0])]
    hit = models.Hit
    return [
        *(
            hit(kind="operator", id=op_id, title=name or op_id, time=time)
            for name, op_id, time in matching(operators)
        ),
        *(hit(kind="dispatched", id=name, title=name, time=None) for name, _ in matching(dispatched)),
        *(hit(kind="kernel", id=name, title=name, time=time) for name, time in matching(kernels)),
        *(hit(kind="module", id=name, title=name, time=time) for name, time in matching(modules)),
        *(hit(kind="line", id=line, title=line, time=time) for line, time in matching(list(times.items()))),
    ]
