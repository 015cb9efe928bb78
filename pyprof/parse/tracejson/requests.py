# SPDX-License-Identifier: Apache-2.0
"""Lengths of requests, recorded in an annotation around a server's step, for the operators of attention in it.

    execute_8192_context_9(sq8155sk8430sqsq7475785sqsk7671310)_generation_37(sq37sk34489sqsq37sqsk34489)

gives, for 9 requests in prefill and for 37 that generate, the sums of their new tokens, of all their tokens, of the
squares of the first and of the products of both. Source: profiles of vLLM and SGLang on MI300X, AMD-AGI/TraceLens.
"""

from __future__ import annotations

import re
from dataclasses import replace

import numpy as np

from pyprof.core.intervals import groups
from pyprof.core.marker import encode
from pyprof.core.model import Arg, Bools, Ints, Trace

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


def add_sequence_lengths(trace: Trace) -> None:
    """Add the lengths to the operators of attention inside such annotations. Changes the trace."""
    steps = {
        code: tuple(int(number) for number in match.groups())
        for code in np.unique(trace.ranges.text).tolist()
        if (match := _STEP.fullmatch(trace.strings[code]))
    }
    texts = {code for code, call in trace.calls.items() if call.op in ATTENTION or _WRAPPED.fullmatch(call.op)}
    if not steps or not texts:
        return
    rows = np.flatnonzero(np.isin(trace.ops.text, list(texts)))
    around = _around(trace, np.isin(trace.ranges.text, list(steps)), rows)
    cache: dict[tuple[int, int], int] = {}
    text = trace.ops.text.copy()
    for row, range_row in zip(rows[around >= 0].tolist(), around[around >= 0].tolist()):
        key = int(text[row]), int(trace.ranges.text[range_row])
        if key not in cache:
            call = trace.calls[key[0]]
            call = call._replace(args=(*call.args, Arg("lengths", steps[key[1]])))
            cache[key] = trace.strings.code(encode(call))
            trace.calls[cache[key]] = call
        text[row] = cache[key]
    trace.ops = replace(trace.ops, text=text)


def _around(trace: Trace, is_step: Bools, operators: Ints) -> Ints:
    """Return the annotation around each operator, -1 for none. Steps of a thread do not overlap."""
    ranges = np.flatnonzero(is_step)
    threads = {thread: ranges[places] for thread, places in groups(trace.ranges.thread[ranges])}
    out = np.full(len(operators), -1, np.int64)
    for thread, places in groups(_launching(trace)[trace.ops.thread[operators]]):
        rows = threads.get(thread)
        if rows is None:
            continue
        rows = rows[np.argsort(trace.ranges.start[rows], kind="stable")]
        start = trace.ops.start[operators[places]]
        step = rows[np.maximum(np.searchsorted(trace.ranges.start[rows], start, side="right") - 1, 0)]
        inside = (trace.ranges.start[step] <= start) & (start < trace.ranges.end.values[step])
        out[places] = np.where(inside, step, -1)
    return out


def _launching(trace: Trace) -> Ints:
    """Return, per thread, the thread itself, or for one with the operators of graph replays the thread that launches
    them."""
    numbers = {key: i for i, key in enumerate(trace.threads)}
    return np.array(
        [
            numbers.get(thread._replace(tid=-1 - thread.tid), i) if thread.tid < 0 else i
            for i, thread in enumerate(trace.threads)
        ],
        np.int64,
    )
