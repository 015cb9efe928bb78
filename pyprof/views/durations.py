# SPDX-License-Identifier: Apache-2.0
"""Durations of the events of one name in a stretch of the timeline, from the tiles of every event."""

from __future__ import annotations

import numpy as np

from pyprof.core.model import Ints
from pyprof.store.files import Store
from pyprof.timeline import stored
from pyprof.views.models import Durations
from pyprof.views.problems import Trouble

_MOST = 3_000_000  # events that are read: about a second
_BUCKETS = 40
_RATIO = 10  # of the longest and the shortest, above which buckets grow


def durations(store: Store, track: int, name: int, start: int, end: int, worker: int | None) -> Durations:
    """Return the durations of the events of a name that touch [start, end), in all tracks of the kind of a track:
    modules on devices apart from modules on threads.

    Raises Trouble for a stretch that is empty or has too many events, and without such a track."""
    if end <= start:
        raise Trouble("parameter", "end: the stretch ends before it starts.", "end")
    own = next((one for one in stored.places(store, None) if one.id == track), None)
    if own is None:
        raise Trouble("missing", f"The timeline has no track {track}.")
    alike = [one for one in stored.places(store, worker, [own.kind]) if (one.device is None) == (own.device is None)]
    total = stored.count(store, alike, start, end)
    if total > _MOST:
        raise Trouble("parameter", f"end: the stretch has {total:,} events; choose one with at most {_MOST:,}.", "end")
    parts = [
        (records.end - records.start)[records.name == name]
        for one in alike
        for records in stored.events(store, one, start, end)
    ]
    return summary(np.concatenate(parts) if parts else np.empty(0, np.int64))


def summary(lengths: Ints) -> Durations:
    """Return how often which durations occur.

    The median is the shortest duration that at least half of the events do not exceed, and so on: one that occurs.

    >>> one = summary(np.array([7, 3, 5, 3]))
    >>> one.median, one.p95, one.edges, one.counts
    (3, 7, [3, 4, 5, 6, 7, 8], [2, 0, 1, 0, 1])
    """
    if not len(lengths):
        return Durations(count=0, total=0, shortest=None, median=None, p95=None, longest=None, edges=[], counts=[])
    ordered = np.sort(lengths)
    shortest, longest = int(ordered[0]), int(ordered[-1])
    bounds = shortest, longest + 1
    spaced = np.geomspace if shortest > 0 and longest > _RATIO * shortest else np.linspace
    edges = np.unique(spaced(*bounds, _BUCKETS + 1).round().astype(np.int64))
    edges[0], edges[-1] = bounds  # not what rounding makes of them
    places = np.searchsorted(ordered, edges)
    rank = {share: int(ordered[-(-len(ordered) * share // 100) - 1]) for share in (50, 95)}
    return Durations(
        count=len(ordered), total=int(ordered.sum()), shortest=shortest, median=rank[50], p95=rank[95],
        longest=longest, edges=edges.tolist(), counts=np.diff(places).tolist(),
    )  # fmt: skip
