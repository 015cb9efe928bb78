# SPDX-License-Identifier: Apache-2.0
"""Launches whose work on the device is not in the file: CUPTI dropped it, was not allowed to record it, or the file
ends before it ran. Without a count such a recording looks like one of a device that had nothing to do.

Calls that start one kernel are counted, and replays of graphs, which start at least one. A copy or a set may be empty
and have no event (libraries clear workspaces of no bytes), so it is counted only between launches that are missing too.
Not counted: what is captured into a graph, and a call inside another that has an event (the driver's in the runtime's).
"""

from __future__ import annotations

import re
from collections.abc import Mapping

import numpy as np

from pyprof.core import intervals
from pyprof.core.api_names import starts_one_kernel, without_version
from pyprof.core.model import Bools, Ints, Trace
from pyprof.parse.join import link

_END = " whose work is not in the file"
_GRAPH = re.compile(r"(?:cuda|cu|hip)GraphLaunch")
_MAY_BE_EMPTY = re.compile(r"(?:cuda|cu|hip)Mem(?:cpy|set)(?!Batch)\w*")
_CAPTURE = re.compile(r"(?:cuda|cu|hip)Stream(Begin|End)Capture\w*")
_MODE = re.compile(r"_pts[dz]$")  # the stream that a call means by 0


def count(lost: Mapping[str, int]) -> int:
    """Return the number of launches whose work is missing, of losses by reason."""
    return sum(number for reason, number in lost.items() if reason.endswith(_END))


def note(trace: Trace) -> None:
    """Count the launches whose work is missing, by the name of the call."""
    launches, gpu = trace.launches, trace.gpu
    names = {code: _MODE.sub("", without_version(trace.strings[code])) for code in np.unique(launches.name).tolist()}
    kernel = _named(trace, {code for code, name in names.items() if starts_one_kernel(name) or _GRAPH.fullmatch(name)})
    maybe = _named(trace, {code for code, name in names.items() if _MAY_BE_EMPTY.fullmatch(name)})
    if not (kernel | maybe).any() or (len(gpu) and not gpu.correlation.mask().any()):
        return
    owner = np.array([thread.process for thread in trace.threads], np.int64)
    launch = link(gpu, launches, owner)
    matched = np.zeros(len(launches) + 1, bool)
    matched[launch] = True
    apart = gpu.correlation.values[
        (gpu.process < 0) & (launch < 0) & gpu.correlation.mask()
    ]  # of a process that is not known
    matched = matched[:-1] | np.isin(launches.correlation, apart) | launches.node.mask()
    if len(gpu):
        matched |= launches.correlation < 0
    captures = {code: match[1] for code, name in names.items() if (match := _CAPTURE.fullmatch(name))}
    candidate = np.flatnonzero((kernel | maybe) & (matched | ~_captured(trace, captures, owner)))
    missing = np.zeros(len(launches), bool)
    for _, own in intervals.groups(launches.thread[candidate]):
        rows = candidate[own]
        rows = rows[np.lexsort((-launches.end[rows], launches.start[rows]))]
        first = _outermost(launches.start[rows], launches.end[rows])
        absent = ~np.logical_or.reduceat(matched[rows], first)
        rows = rows[first]
        missing[rows] = absent & (kernel[rows] | _between(absent, kernel[rows]) | (not len(gpu)))
    for code, number in zip(*(column.tolist() for column in np.unique(launches.name[missing], return_counts=True))):
        trace.drop(f"launches by {names[code]}{_END}", number)


def _named(trace: Trace, codes: set[int]) -> Bools:
    return np.isin(trace.launches.name, list(codes))


def _outermost(start: Ints, end: Ints) -> Ints:
    """Return the places of the intervals that are in no other, of intervals by start."""
    reached = np.maximum.accumulate(end)
    return np.flatnonzero(np.r_[True, start[1:] >= reached[:-1]])


def _between(absent: Bools, kernel: Bools) -> Bools:
    """Return which calls have only absent kernels next to them, before and after; at an end one is enough."""
    place = np.arange(len(absent))
    before = np.maximum.accumulate(np.where(kernel, place, -1))
    after = np.minimum.accumulate(np.where(kernel, place, len(absent))[::-1])[::-1]
    known = np.r_[absent, True]  # no kernel at this end
    out: Bools = known[before] & known[after] & ((before >= 0) | (after < len(absent)))
    return out


def _captured(trace: Trace, captures: Mapping[int, str], owner: Ints) -> Bools:
    """Return which calls are made while a stream of their process is captured, on whatever thread."""
    launches = trace.launches
    out = np.zeros(len(launches), bool)
    bounds = np.flatnonzero(np.isin(launches.name, list(captures)))
    process = owner[launches.thread] if len(launches) else launches.thread
    for number, own in intervals.groups(process[bounds]):
        rows = bounds[own]
        rows = rows[np.argsort(launches.start[rows], kind="stable")]
        begins = np.array([captures[code] == "Begin" for code in launches.name[rows].tolist()])
        members = np.flatnonzero(process == number)
        place = np.searchsorted(launches.start[rows], launches.start[members], side="right")
        # Open after a Begin; before the first call, if that is an End.
        state = np.r_[not begins[0], begins]
        out[members] = state[place]
    return out
