# SPDX-License-Identifier: Apache-2.0
"""Sums over the events of tracks in a stretch of time, of equal operator and name, from which tables are added up.

Times are clipped to the stretch. The work of a kernel is spread evenly over its time: of one that crosses an edge, as
much counts as of its time is inside. Work that is not known is counted, not zero.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np

from pyprof.core.model import KERNELS, Bools, Column, Floats, Ints
from pyprof.costs.hardware.utilisation import MOST
from pyprof.store.files import Store
from pyprof.timeline import stored
from pyprof.timeline.records import Records
from pyprof.views.models import SelectedWork
from pyprof.views.problems import Trouble

_MOST = 3_000_000  # events: about a second
_AMOUNTS = ("flops", "bytes", "hardware_ps", "model_ps")
TIME, COUNT, _KERNELS, _WORK = range(4)  # columns of the sums; those from _KERNELS only with work


class Part(NamedTuple):
    """The events of a track in the stretch, clipped to it."""

    kind: str
    worker: int
    device: int | None
    id: Ints
    start: Ints
    end: Ints
    name: Ints
    operator: Ints


class Sums(NamedTuple):
    """Sums over the events of a track: a row of `values` for each pair of operator (-1: none) and name. Its columns:
    time, events, kernels, then for each amount its sum, the kernels without it, and the time of the others."""

    worker: int
    device: int | None
    operator: Ints
    name: Ints
    values: Floats


def parts_of(store: Store, start: int, end: int, worker: int | None, kinds: Sequence[str]) -> list[Part]:
    """Return the events of tracks of some kinds, those without any left out. Raises Trouble for a stretch
    that is empty or has too many events."""
    if end <= start:
        raise Trouble("parameter", "end: the stretch ends before it starts.", "end")
    tracks = stored.places(store, worker, kinds)
    total = stored.count(store, tracks, start, end)
    if total > _MOST:
        raise Trouble("parameter", f"end: the stretch has {total:,} events; choose one with at most {_MOST:,}.", "end")
    return [part for one in tracks if (part := _read(store, one, start, end))]


def _read(store: Store, track: stored.Place, start: int, end: int) -> Part | None:
    records = list(stored.events(store, track, start, end))
    if not records:
        return None
    joined = Records(*(np.concatenate(columns) for columns in zip(*records)))
    return Part(
        track.kind,
        track.worker,
        track.device,
        joined.id,
        np.maximum(joined.start, start),
        np.minimum(joined.end, end),
        joined.name,
        joined.operator,
    )


def sums_of(store: Store, parts: Sequence[Part], work: bool) -> list[Sums]:
    """Return the sums of each part, with the work of kernels if it is asked for."""
    kernels = {worker: _kernels(store, parts, worker) for worker in {part.worker for part in parts} if work}
    out = []
    for part in parts:
        operator, name = part.operator.astype(np.int64), part.name.astype(np.int64)
        _, first, place = np.unique(operator << 32 | name, return_index=True, return_inverse=True)
        time = part.end - part.start
        columns = [time, np.ones(len(time)), *(_work(part.id, time, kernels[part.worker]) if work else ())]
        values: Floats = np.stack([np.bincount(place, column, len(first)) for column in columns], 1, dtype=np.float64)
        out.append(Sums(part.worker, part.device, operator[first] - 1, name[first], values))
    return out


def _kernels(store: Store, parts: Sequence[Part], worker: int) -> dict[str, Column]:
    """Return the kernels of a worker from the first to the last of the parts by id, with what they do."""
    ids = np.concatenate([part.id for part in parts if part.worker == worker])
    low, high = (int(ids.min()), int(ids.max()) + 1) if len(ids) else (0, 0)
    event = store.table("event", ("id", "kind", "duration_ns", *_AMOUNTS), low, high)
    kernels = np.flatnonzero(np.isin(event.pop("kind").values, KERNELS))
    return {name: column.take(kernels) for name, column in event.items()}


def _work(id: Ints, time: Ints, kernels: dict[str, Column]) -> Iterator[Floats | Bools | Ints]:
    """Yield the columns of sums that are about work, for events with a time inside."""
    kernel_id = kernels["id"].values
    place = np.searchsorted(kernel_id, id)
    place[place == len(kernel_id)] = 0
    is_kernel = kernel_id[place] == id if len(kernel_id) else np.zeros(len(id), bool)
    yield is_kernel
    index = place[is_kernel]
    duration = kernels["duration_ns"].values[index]
    share = np.where(duration > 0, time[is_kernel] / np.maximum(duration, 1), 1.0)
    for key in _AMOUNTS:
        column = kernels[key].take(index)
        known = column.mask()
        for of_kernels in (np.where(known, column.values * share, 0), ~known, known * time[is_kernel]):
            values = np.zeros(len(id))
            values[is_kernel] = of_kernels
            yield values


def values_of(sums: Sequence[Sums], work: bool) -> Floats:
    """Return the rows of several, one after the other."""
    empty = np.zeros((0, _WORK + 3 * len(_AMOUNTS) if work else _KERNELS))
    return np.concatenate([empty, *(one.values for one in sums)])


def work_of(values: Floats, length: int | None = None) -> SelectedWork | None:
    """Return the work in a row of sums; None where they have none. `length`: the time that HFU and MFU are shares of,
    instead of that of the kernels for which they are known."""
    if len(values) <= _KERNELS:
        return None
    kernels = int(values[_KERNELS])
    amounts: dict[str, float | None] = {}
    unknown: dict[str, int] = {}
    for key, (amount, without, time) in zip(("flops", "bytes", "hfu", "mfu"), values[_WORK:].reshape(-1, 3)):
        unknown[key] = int(without)
        known = float(amount) if not without or without < kernels else None
        if key in ("hfu", "mfu") and known is not None:
            if length is None and not amount and without:
                known = None  # as in reports: what carries the work is not in it
            else:
                of = time if length is None else length
                known = known / 10 / of if of else None  # ps / ns to %
                known = None if key == "hfu" and (known or 0) > 100 * MOST else known
        amounts[key] = known
    return SelectedWork(
        kernels=kernels, flops=amounts["flops"], flops_unknown=unknown["flops"],
        bytes=amounts["bytes"], bytes_unknown=unknown["bytes"],
        hfu=amounts["hfu"], hfu_unknown=unknown["hfu"], mfu=amounts["mfu"], mfu_unknown=unknown["mfu"],
    )  # fmt: skip
