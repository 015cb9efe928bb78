# SPDX-License-Identifier: Apache-2.0
"""Trees in memory: which nodes are open, sorted among siblings, filtered with what is above a match, cut into pages.

A page of the browser has some rows of a tree of any size. What is open is said by keys of nodes, which are made of
their paths: they are the same in another aggregation, and short.
"""

from __future__ import annotations

import hashlib
from typing import Any

import numpy as np
import pyarrow as pa

from pyprof.model import Bools, Ints
from pyprof.reports import Column
from pyprof.viewer import models
from pyprof.viewer.column_table import Frame
from pyprof.viewer.report_pages import columns_of as as_models
from pyprof.viewer.tree_reports import columns_of

_NAME = Column("name", "Name", "", "What it adds to the node above.", str)
_KEY = 6  # bytes: of 50,000 nodes two are the same in one of 200,000 trees, and open together


class Tree:
    """A table of `nodes`, by which it is made."""

    def __init__(self, answer: tuple[Any, pa.Table], name: str):
        found = answer[1]
        self.complete: bool = answer[0]["complete"]
        self.columns = columns_of(name)
        self.frame = Frame(found, (_NAME, *self.columns))
        self.paths: list[str] = found.column("path").to_pylist()
        self.names: list[str] = found.column("name").to_pylist()
        self.group: list[bool] = found.column("group").to_pylist()
        self.parent: Ints = found.column("parent").to_numpy()
        self.keys = [_key(path) for path in self.paths]
        self.at = {key: place for place, key in enumerate(self.keys)}
        self.levels = _levels(self.parent)
        self.level: Ints = np.zeros(len(self.paths), np.int64)
        for number, here in enumerate(self.levels):
            self.level[here] = number + 1
        self.inside: Bools = np.bincount(self.parent + 1, minlength=len(self.paths) + 1)[1:] > 0

    @property
    def nbytes(self) -> int:
        return self.frame.nbytes + sum(map(len, self.paths)) + 400 * len(self.paths)

    def page(self, offset: int, limit: int, sort: str | None, search: str, open: str | None) -> models.Tree:
        """Some rows. Raises Trouble for a column that does not exist."""
        opened, said = self._opened(open)
        kept = self._kept(search.strip().casefold()) if search.strip() else None
        rows = self.rows(opened if kept is None else kept, kept, sort)
        shown: Ints = rows[offset : offset + limit]
        unfolded = (opened if kept is None else kept) & self.inside
        note = None if self.complete else f"The first {len(self.paths):,} nodes; the others are in an export."
        nodes = [
            models.Node(
                key=self.keys[at], path=self.paths[at], name=self.names[at], level=int(self.level[at]),
                group=self.group[at], inside=bool(self.inside[at]), open=bool(unfolded[at]),
            )
            for at in shown.tolist()
        ]  # fmt: skip
        return models.Tree(
            columns=as_models(self.columns), nodes=nodes, rows=[row[1:] for row in self.frame.cells(shown)],
            open=said, offset=offset, total=len(self.paths), filtered=len(rows), complete=self.complete, note=note,
        )  # fmt: skip

    def rows(self, opened: Bools, kept: Bools | None, sort: str | None) -> Ints:
        """Places of the nodes that are seen, each behind the one above it and its siblings before it, with what is
        inside these."""
        seen: Bools = np.ones(len(self.paths), bool) if kept is None else kept.copy()
        for here in self.levels[1:]:
            above = self.parent[here]
            seen[here] &= seen[above] & opened[above]
        size = seen.astype(np.int64)  # of what is seen of it and inside it
        for here in reversed(self.levels[1:]):
            np.add.at(size, self.parent[here], size[here])
        rank = np.empty(len(self.paths), np.int64)
        rank[self.frame.select(sort=sort)] = np.arange(len(self.paths))
        order = np.lexsort((rank, self.parent))  # siblings together
        before = np.cumsum(size[order]) - size[order]
        new = np.flatnonzero(np.diff(self.parent[order], prepend=-2))
        before -= np.repeat(before[new], np.diff(new, append=len(order)))
        place = np.empty(len(self.paths), np.int64)
        place[order] = before
        for here in self.levels[1:]:
            place[here] += place[self.parent[here]] + 1
        found = np.empty(int(seen.sum()), np.int64)
        found[place[seen]] = np.flatnonzero(seen)
        return found

    def _opened(self, text: str | None) -> tuple[Bools, str]:
        """What is open, and how it is said: `none`, `all`, the keys of what is, or `all` and the keys of what is not.
        Nothing said: a root that is alone."""
        if text is None:
            roots = np.flatnonzero(self.parent < 0).tolist()
            text = self.keys[roots[0]] if len(roots) == 1 else "none"
        words = text.split(",")
        every = words[0] == "all"
        opened: Bools = np.full(len(self.paths), every)
        opened[[self.at[word] for word in words if word in self.at]] = not every
        return opened, text

    def _kept(self, wanted: str) -> Bools:
        """Nodes with a name that holds a text, or a path that ends with it, and all that are above them."""
        kept: Bools = self.frame.matching("name", lambda one: wanted in one.casefold())
        kept |= np.array([path.casefold().endswith(wanted) for path in self.paths], bool)
        for here in reversed(self.levels[1:]):
            kept[self.parent[here[kept[here]]]] = True
        return kept


def _key(path: str) -> str:
    return hashlib.blake2b(path.encode("utf-8", "surrogatepass"), digest_size=_KEY).hexdigest()


def _levels(parent: Ints) -> list[Ints]:
    """The places of nodes by level, from the roots."""
    level = [0] * len(parent)
    for place, up in enumerate(parent.tolist()):  # those above come before
        level[place] = level[up] + 1 if up >= 0 else 0
    depth = np.array(level, np.int64)
    order = np.argsort(depth, kind="stable")
    return np.split(order, np.flatnonzero(np.diff(depth[order])) + 1) if len(order) else []
