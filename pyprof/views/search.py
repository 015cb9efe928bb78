# SPDX-License-Identifier: Apache-2.0
"""Search: operators of any spelling, kernels, modules and source lines that contain a text.

Only tables of names are read, which are small however long the recording is. Case, punctuation and underscores do not
matter: `convolution_backward` finds aten::convolution_backward, CudnnConvolutionBackward and CONVOLUTION_BACKWARD_3.
What has that name is first, then what begins with it, what contains it, and what is below a place of that name.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any, Literal

from pyprof.facts.steps.source import Source
from pyprof.measures.queries import SELECTED
from pyprof.store.kinds import ON_GPU
from pyprof.views import models

Kind = Literal["operator", "dispatched", "kernel", "module", "line"]
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


# What is before a name in the texts of its kind: namespaces, folders, modules around it.
_BEFORE = {
    "operator": re.compile(r".*/", re.DOTALL),
    "dispatched": re.compile(r".*(::|: )", re.DOTALL),
    "kernel": re.compile(r".*(::|\s)", re.DOTALL),
    "module": re.compile(r".*[./]", re.DOTALL),
    "line": re.compile(r".*/", re.DOTALL),
}
_MATCHES: tuple[Literal["name", "start", "part", "path"], ...] = ("name", "start", "part", "path")


def own_name(text: str, kind: str) -> str:
    """Return a name without what is before it, and of a kernel without arguments.

    >>> own_name("void at::native::(anonymous namespace)::softmax_warp_forward<float, 3>(float*)", "kernel")
    'softmax_warp_forward'
    >>> own_name("aten::add.Tensor", "dispatched"), own_name("Net_0.Block_1.Linear_2", "module")
    ('add.Tensor', 'Linear_2')
    """
    if kind == "kernel":
        text = re.split(r"(?<=\w)[<(]", text, maxsplit=1)[0]
    return _BEFORE[kind].sub("", text, count=1) or text


def rank_of(needle: str, texts: Sequence[str | None], kind: str) -> int | None:
    """Return how a text fits a thing with these names, as the place in _MATCHES; None if in none of them."""
    ranks = []
    for text in filter(None, texts):
        whole, own = plain(text), plain(own_name(text, kind))
        if needle in (whole, own):
            ranks.append(0)
        elif whole.startswith(needle) or own.startswith(needle):
            ranks.append(1)
        elif needle in own:
            ranks.append(2)
        elif needle in whole:
            ranks.append(3)
    return min(ranks, default=None)


def best(needle: str, kind: Kind, names: Sequence[tuple[Any, ...]]) -> list[tuple[int, models.Hit]]:
    """Return the hits of a kind with their ranks: those that fit best, of these the first by time, of equal times the
    shorter. `names`: rows of texts, of which the first is the title and the last the id, and a time."""
    ranked = [(rank_of(needle, row[:-1], kind), row) for row in names]
    hits = [(rank, row) for rank, row in ranked if rank is not None]
    hits = sorted(hits, key=lambda hit: (hit[0], -(hit[1][-1] or 0), len(hit[1][-2])))[:_MOST]
    return [
        (
            rank,
            models.Hit(
                kind=kind, id=row[-2], title=row[0] or row[-2], match=_MATCHES[rank],
                time=None if kind == "dispatched" else row[-1],
            ),
        )
        for rank, row in hits
    ]  # fmt: skip


def find_names(source: Source, text: str) -> list[models.Hit]:
    """Return the hits, those that fit best first, of each kind the first by time."""
    needle = plain(text)
    if not needle:
        return []
    parameters = {"aggregation": source.aggregation.id, "worker": source.worker}
    rows = source.store.rows

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
    short = rows("select text, 0 from string where length(text) < 200 and text not like '{%'")  # no arguments of calls
    dispatched = [row for row in short if _DISPATCHED.fullmatch(row[0])]
    hits = [
        *best(needle, "operator", operators), *best(needle, "dispatched", dispatched), *best(needle, "kernel", kernels),
        *best(needle, "module", modules), *best(needle, "line", list(times.items())),
    ]  # fmt: skip
    return [hit for _, hit in sorted(hits, key=lambda hit: hit[0])]
