# SPDX-License-Identifier: Apache-2.0
"""Trees in memory: open nodes, sorted among siblings, filtered with the ancestors of matches, split into pages.

A page in the browser contains some rows of a tree of any size. Open nodes are identified by keys derived from their
paths: they are the same in another aggregation, and short.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from pyprof.core.model import Bools, Ints
from pyprof.reports import Column
from pyprof.views import models
from pyprof.views.column_table import Frame
from pyprof.views.report_pages import columns_of as as_models
from pyprof.views.report_pages import totals
from pyprof.views.tree_reports import SUMS, columns_of

_NAME = Column("name", "Name", "", "Addition to the parent's name.", str)
_KEY = 6  # bytes: with 50,000 nodes, one tree in 200,000 has two equal keys, whose nodes open together


class Tree:
    """Tree built from a table of nodes (`tree_reports`); `more`: columns of the table that the report has not."""

    def __init__(self, answer: tuple[Any, pa.Table], name: str, more: tuple[Column, ...] = ()):
        table = answer[1]
        self.complete: bool = answer[0]["complete"]
        self.columns = (*columns_of(name), *more)
        self.frame = Frame(table, (_NAME, *self.columns))
        self.paths: list[str] = table.column("path").to_pylist()
        self.names: list[str] = table.column("name").to_pylist()
        self.group: list[bool] = table.column("group").to_pylist()
        self.parent: Ints = table.column("parent").to_numpy()
        self.keys = [_key(path) for path in self.paths]
        self.at = {key: place for place, key in enumerate(self.keys)}
        self.levels = _levels(self.parent)
        self.level: Ints = np.zeros(len(self.paths), np.int64)
        for number, nodes in enumerate(self.levels):
            self.level[nodes] = number + 1
        roots, nodes = np.flatnonzero(self.parent < 0), np.arange(len(self.paths))
        self.totals: dict[str, models.Total] = {}
        for key in SUMS[name] if self.complete else ():
            self.totals |= totals(self.frame, (key,), nodes if "_self_" in key else roots)
        self.inside: Bools = np.bincount(self.parent + 1, minlength=len(self.paths) + 1)[1:] > 0

    @property
    def nbytes(self) -> int:
        return self.frame.nbytes + sum(map(len, self.paths)) + 400 * len(self.paths)

    def page(self, offset: int, limit: int, sort: str | None, search: str, open: str | None) -> models.Tree:
        """Return some rows. Raises Trouble for an unknown column."""
        opened, open_text = self._open_mask(open)
        matching = self.matching(search) if search.strip() else None
        rows = self.rows(opened if matching is None else matching, matching, sort)
        visible: Ints = rows[offset : offset + limit]
        unfolded = (opened if matching is None else matching) & self.inside
        note = None if self.complete else f"The first {len(self.paths):,} nodes; an export contains the others."
        nodes = [
            models.Node(
                key=self.keys[at], path=self.paths[at], name=self.names[at], level=int(self.level[at]),
                group=self.group[at], inside=bool(self.inside[at]), open=bool(unfolded[at]),
            )
            for at in visible.tolist()
        ]  # fmt: skip
        return models.Tree(
            columns=as_models(self.columns), nodes=nodes, rows=[row[1:] for row in self.frame.cells(visible)],
            open=open_text, offset=offset, total=len(self.paths), filtered=len(rows), complete=self.complete, note=note,
            totals=self.totals,
        )  # fmt: skip

    def rows(self, opened: Bools, matching: Bools | None, sort: str | None) -> Ints:
        """Return the indices of the visible nodes: each follows its parent, and its preceding siblings with their
        descendants."""
        visible: Bools = np.ones(len(self.paths), bool) if matching is None else matching.copy()
        for nodes in self.levels[1:]:
            above = self.parent[nodes]
            visible[nodes] &= visible[above] & opened[above]
        size = visible.astype(np.int64)  # visible nodes in each subtree
        for nodes in reversed(self.levels[1:]):
            np.add.at(size, self.parent[nodes], size[nodes])
        rank = np.empty(len(self.paths), np.int64)
        rank[self.frame.select(sort=sort)] = np.arange(len(self.paths))
        order = np.lexsort((rank, self.parent))  # siblings together
        before = np.cumsum(size[order]) - size[order]
        new = np.flatnonzero(np.diff(self.parent[order], prepend=-2))
        before -= np.repeat(before[new], np.diff(new, append=len(order)))
        place = np.empty(len(self.paths), np.int64)
        place[order] = before
        for nodes in self.levels[1:]:
            place[nodes] += place[self.parent[nodes]] + 1
        out = np.empty(int(visible.sum()), np.int64)
        out[place[visible]] = np.flatnonzero(visible)
        return out

    def _open_mask(self, text: str | None) -> tuple[Bools, str]:
        """Return a mask of the open nodes, and its text: `none`, `all`, the keys of open nodes, or `all` and the keys
        of closed nodes. By default, a single root is open."""
        if text is None:
            roots = np.flatnonzero(self.parent < 0).tolist()
            text = self.keys[roots[0]] if len(roots) == 1 else "none"
        words = text.split(",")
        all_open = words[0] == "all"
        opened: Bools = np.full(len(self.paths), all_open)
        opened[[self.at[word] for word in words if word in self.at]] = not all_open
        return opened, text

    def matching(self, search: str, filters: Sequence[str] = ()) -> Bools:
        """Return a mask of nodes whose name contains a text or whose path ends with it, and that pass the filters, and
        of their ancestors. Raises Trouble."""
        needle = search.strip().casefold()
        mask: Bools = self.frame.matching("name", lambda name: needle in name.casefold())
        mask |= np.array([path.casefold().endswith(needle) for path in self.paths], bool)
        if filters:
            passed = np.zeros(len(mask), bool)
            passed[self.frame.select(filters=filters)] = True
            mask &= passed
        for nodes in reversed(self.levels[1:]):
            mask[self.parent[nodes[mask[nodes]]]] = True
        return mask


def _key(path: str) -> str:
    return hashlib.blake2b(path.encode("utf-8", "surrogatepass"), digest_size=_KEY).hexdigest()


def _levels(parent: Ints) -> list[Ints]:
    """Return the indices of nodes by level, from the roots."""
    level = [0] * len(parent)
    for place, up in enumerate(parent.tolist()):  # parents come first
        level[place] = level[up] + 1 if up >= 0 else 0
    depth = np.array(level, np.int64)
    order = np.argsort(depth, kind="stable")
    return np.split(order, np.flatnonzero(np.diff(depth[order])) + 1) if len(order) else []
