# SPDX-License-Identifier: Apache-2.0
"""Lengths of requests, which an annotation around a server's step tells, for the operators of attention in it.

    execute_8192_context_9(sq8155sk8430sqsq7475785sqsk7671310)_generation_37(sq37sk34489sqsq37sqsk34489)

says of 9 requests in prefill and of 37 that generate the sums of their new tokens, of all their tokens, of the squares
of the first and of the products of both. Source: profiles of vLLM and SGLang on MI300X, AMD-AGI/TraceLens.
"""

from __future__ import annotations

import re
from dataclasses import replace

import numpy as np

from pyprof.intervals import groups
from pyprof.marker import encode
from pyprof.model import Arg, Bools, Ints, Trace

# Operators whose work the lengths decide; each has a formula with an argument `lengths`.
ATTENTION = frozenset(
    [
        "vllm::unified_attention_with_output",
        "vllm::unified_attention",
        "sglang::unified_attention_with_output",
        "aiter::mha_batch_prefill",
    ]
)
_WRAPPED = re.compile(r"sglang_profiler::attention_paged_attention_ragged_[0-9]+")
_SUMS = r"\(sq(\d{1,9})sk(\d{1,12})sqsq(\d{1,18})sqsk(\d{1,18})\)"
_STEP = re.compile(rf"execute_\d+_context_\d+{_SUMS}_generation_\d+{_SUMS}")


def attach(trace: Trace) -> None:
    """Give the lengths to the operators of attention inside such annotations. Changes the trace."""
    steps = {
        code: tuple(int(number) for number in match.groups())
        for code in np.unique(trace.ranges.text).tolist()
        if (match := _STEP.fullmatch(trace.strings[code]))
    }
    texts = {
        code for code, call in trace.calls.items() if call.op in ATTENTION or _WRAPPED.fullmatch(call.op)
    }
    if not steps or not texts:
        return
    rows = np.flatnonzero(np.isin(trace.ops.text, list(texts)))
    around = _around(trace, np.isin(trace.ranges.text, list(steps)), rows)
    known: dict[tuple[int, int], int] = {}
    text = trace.ops.text.copy()
    for row, place in zip(rows[around >= 0].tolist(), around[around >= 0].tolist()):
        key = int(text[row]), int(trace.ranges.text[place])
        if key not in known:
            call = trace.calls[key[0]]
            call = call._replace(args=(*call.args, Arg("lengths", steps[key[1]])))
            known[key] = trace.strings.code(encode(call))
            trace.calls[known[key]] = call
        text[row] = known[key]
    trace.ops = replace(trace.ops, text=text)


def _around(trace: Trace, is_step: Bools, rows: Ints) -> Ints:
    """The annotation around each operator, -1 for none. Steps of a thread do not overlap."""
    ranges = np.flatnonzero(is_step)
    threads = {thread: ranges[places] for thread, places in groups(trace.ranges.thread[ranges])}
    out = np.full(len(rows), -1, np.int64)
    for thread, places in groups(_launching(trace)[trace.ops.thread[rows]]):
        mine = threads.get(thread)
        if mine is None:
            continue
        mine = mine[np.argsort(trace.ranges.start[mine], kind="stable")]
        start = trace.ops.start[rows[places]]
        at = mine[np.maximum(np.searchsorted(trace.ranges.start[mine], start, side="right") - 1, 0)]
        inside = (trace.ranges.start[at] <= start) & (start < trace.ranges.end.values[at])
        out[places] = np.where(inside, at, -1)
    return out


def _launching(trace: Trace) -> Ints:
    """Per thread itself, for one with the operators of graph replays the thread that launches them."""
    numbers = {thread: i for i, thread in enumerate(trace.threads)}
    return np.array(
        [
            numbers.get(one._replace(tid=-1 - one.tid), i) if one.tid < 0 else i
            for i, one in enumerate(trace.threads)
        ],
        np.int64,
    )
