# SPDX-License-Identifier: Apache-2.0
"""Reads of a profile database that several reports, rules and commands need."""

from __future__ import annotations

import numpy as np

from pyprof.core.model import Ints
from pyprof.store.files import Store
from pyprof.store.kinds import ON_GPU

_AT_ONCE = 1000  # parameters of a query


def worker_names(store: Store) -> dict[int, str]:
    """Return the name of each worker by its number, in the order of the numbers."""
    return dict(store.rows("select id, name from worker order by id"))


def process_names(store: Store) -> dict[str, str]:
    """Return the name of the process of each worker by the worker's name: a process that was recorded several times
    is as many workers, the second and later ones named "... span 2"."""
    return {name: name.removesuffix(f" span {span}") for name, span in store.rows("select name, span from worker")}


def begins(store: Store) -> dict[int, int]:
    """Return the start of each worker's first marked step on the host, else of its recording, in ns."""
    return dict(
        store.rows(
            """select w.id, coalesce(min(s.start_ns), w.start_ns) from worker w left join step s on s.worker = w.id
               group by w.id"""
        )
    )


def texts(store: Store) -> dict[int, str]:
    """Return the texts of ranges and calls by their ids."""
    return dict(store.rows("select id, text from string"))


def texts_of(store: Store, numbers: Ints) -> dict[int, str]:
    """Return the texts with these ids, in the order of the ids; -1 is none."""
    distinct = np.flatnonzero(np.bincount(numbers[numbers >= 0])).tolist()
    out: dict[int, str] = {}
    for first in range(0, len(distinct), _AT_ONCE):
        part = distinct[first : first + _AT_ONCE]
        marks = ", ".join("?" * len(part))
        out.update(store.rows(f"select id, text from string where id in ({marks}) order by id", part))
    return out


def has_gpu(store: Store) -> bool:
    """Return whether anything ran on a GPU; if not, all events are operator events."""
    # The summary of a fleet has the events of collectives alone.
    query = f"select kind from (select kind from event limit 1) union select kind from op_kernel_stat where {ON_GPU}"
    return bool(store.rows(f"select 1 from ({query}) where {ON_GPU}"))


def has_operators(store: Store) -> bool:
    """Return whether any event belongs to an operator of the program."""
    return bool(store.rows("select 1 from operator where unassociated = 0 limit 1"))


def iteration_count(store: Store, iteration_set: int) -> int:
    """Return the number of iterations of a cut, of the worker with the most."""
    query = "select coalesce(max(number) + 1, 0) from iteration where iteration_set = ?"
    return int(store.rows(query, (iteration_set,))[0][0])


def ranks(store: Store) -> list[int]:
    """Return the ranks of the workers, as far as the recording has them."""
    return [rank for (rank,) in store.rows("select rank from worker where rank is not null")]


def lost(store: Store) -> dict[str, int]:
    """Return how many events were dropped, by reason."""
    return dict(store.rows("select reason, count from lost"))


def row_count(store: Store, table: str) -> int:
    """Return the number of rows of a table of the schema."""
    return int(store.rows(f'select count(*) from "{table}"')[0][0])
