# SPDX-License-Identifier: Apache-2.0
"""Kernels that share the correlation of a call that starts only one: ROCm's recorder gives it to the kernel of another
call now and then, and in a file merged from several ranks each rank counts from 1.

Of calls in a row on a thread of which each has none or several kernels, the kernels are theirs in order, if they are
as many, of one stream, and each begins after its call. Otherwise nobody knows which kernel is whose: they have no
launch, and are counted.
"""

from __future__ import annotations

import numpy as np

from pyprof.core import intervals
from pyprof.core.api_names import starts_one_kernel
from pyprof.core.model import KERNEL, Bools, Column, Ints, Trace
from pyprof.parse.join import link

_RANKS = "launches of GPU events with equal numbers: traces of several ranks in one file; give the folder of the ranks"
_UNKNOWN = "launches of GPU events that share the number of a call that starts one kernel"
_ORDERED = "GPU events with the number of another launch (linked in the order of the launches, kept)"


def untangle(trace: Trace) -> None:
    """Give events that share the number of a launch the number of their own, or none."""
    gpu, launches = trace.gpu, trace.launches
    if not len(gpu) or not len(launches):
        return
    one = np.isin(
        launches.name,
        [code for code in np.unique(launches.name).tolist() if starts_one_kernel(trace.strings[code])],
    )
    one &= launches.correlation >= 0
    owner = np.array([thread.process for thread in trace.threads], np.int64)
    in_several = gpu.correlation.mask() & (gpu.process < 0) & np.isin(gpu.correlation.values, launches.correlation)
    number, known, called = (
        gpu.correlation.values.copy(),
        gpu.correlation.mask().copy(),
        launches.correlation.copy(),
    )
    twice = _twice(owner[launches.thread], called, one)
    launch = link(gpu, launches, owner)
    in_several |= (launch >= 0) & np.r_[twice, False][launch]
    trace.drop(_RANKS, int(in_several.sum()))
    known[in_several & (gpu.process >= 0)] = False
    called[twice] = -1
    launch[in_several] = -1
    count = np.bincount(launch[launch >= 0], minlength=len(launches))
    if (one & ~twice & (count > 1)).any():
        places = np.flatnonzero(one & ~twice)
        for _, own in intervals.groups(launches.thread[places]):
            rows = places[own]
            rows = rows[np.lexsort((-launches.end[rows], launches.start[rows]))]
            odd = np.flatnonzero(count[rows] != 1)
            for run in np.split(odd, np.flatnonzero(np.diff(odd) > 1) + 1):
                events = np.flatnonzero(np.isin(launch, rows[run]) & (gpu.kind == KERNEL))
                if len(events) and (count[rows[run]] > 1).any():
                    _assign(
                        trace,
                        rows[run],
                        events[np.argsort(gpu.start[events], kind="stable")],
                        number,
                        known,
                        called,
                    )
    gpu.correlation = Column(number, None if known.all() else known)
    launches.correlation = called


def _twice(process: Ints, number: Ints, one: Bools) -> Bools:
    """Return which calls of one kernel have the number of another of their process."""
    out = np.zeros(len(one), bool)
    rows = np.flatnonzero(one)
    _, inverse, count = np.unique(
        np.stack([process[rows], number[rows]]), axis=1, return_inverse=True, return_counts=True
    )
    out[rows] = count[inverse.reshape(-1)] > 1
    return out


def _assign(trace: Trace, calls: Ints, events: Ints, number: Ints, known: Bools, called: Ints) -> None:
    """Give the events of calls in a row, of which each has none or several, the numbers of these calls, or none."""
    gpu, launches = trace.gpu, trace.launches
    one_stream = all(len(np.unique(column.values[events])) == 1 for column in (gpu.device, gpu.stream))
    if len(calls) == len(events) and one_stream and (gpu.start[events] >= launches.start[calls]).all():
        trace.repair(_ORDERED, int((number[events] != launches.correlation[calls]).sum()))
        number[events] = launches.correlation[calls]
        return
    if (np.isin(launches.correlation[calls], number[events])).all():  # no call is left: the first is the call's own
        events = events[intervals.turns(number[events]) > 0]
    else:
        own = np.isin(launches.correlation[calls], number[events])
        called[calls[np.argsort(~own, kind="stable")][: len(events)]] = -1  # the others have no kernel at all
    known[events] = False
    trace.drop(_UNKNOWN, len(events))
