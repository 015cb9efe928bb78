# SPDX-License-Identifier: Apache-2.0
"""Reports that are trees, as tables of nodes: those above come before those inside.

`path` is the whole name of a node, `name` what it adds to the one above, `parent` the place of that (-1 of a root). The
other columns are the report's.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pyarrow as pa

from pyprof.analysis.source import Source
from pyprof.reports import Column, find
from pyprof.viewer.column_table import report_table

_OUTSIDE = "unassociated"
_SHAPE = ("name", "level", "module", "depth")  # columns that the tree itself tells
_ARROW = {int: pa.int64(), float: pa.float64(), bool: pa.bool_(), str: pa.string()}


def columns_of(name: str) -> tuple[Column, ...]:
    """Columns of the nodes of a tree, besides their place in it."""
    return tuple(column for column in find(REPORTS[name]).columns if column.key not in _SHAPE)


def groups(source: Source) -> tuple[dict[str, Any], pa.Table]:
    """Groups of operators, and the operators of each below it. Names of groups end with a slash, / is everything; an
    operator hangs on the longest group that it begins with."""
    columns = columns_of("groups")
    wanted = {"name", "op_id", *(column.key for column in columns)}
    detail = find("detail")
    told, tree = report_table(find("group_node"), source)
    more, ops = report_table(
        detail._replace(columns=tuple(c for c in detail.columns if c.key in wanted)), source
    )
    paths: list[str] = tree.column("name").to_pylist()
    place = {path: number for number, path in enumerate(paths)}
    parent = [_above(path, place) for path in paths]
    names = ["/" if path == "/" else f"{path.rstrip('/').rpartition('/')[2]}/" for path in paths]
    outside = place.get(f"{_OUTSIDE}/", -1)
    for path, op_id in zip(ops.column("name").to_pylist(), ops.column("op_id").to_pylist()):
        hung = outside if path.startswith(_OUTSIDE) and outside >= 0 else _above(path, place)
        parent.append(hung)
        names.append(path.rpartition("/")[2] or path)
        paths.append(f"{path} {op_id}")
    group = [True] * tree.num_rows + [False] * ops.num_rows
    complete = told["complete"] and more["complete"]
    return {"complete": complete}, _made(paths, names, parent, group, columns, (tree, ops))


def _above(path: str, place: dict[str, int]) -> int:
    """The group that a path is in; -1 for none."""
    end = path.rstrip("/").rfind("/")
    while end >= 0:
        found = place.get(path[: end + 1])
        if found is not None:
            return found
        end = path.rfind("/", 0, end)
    return -1 if path == "/" else place.get("/", -1)


def modules(source: Source) -> tuple[dict[str, Any], pa.Table]:
    """Modules by their depth."""
    told, found = report_table(find("module"), source)
    paths: list[str] = []
    names: list[str] = []
    parent: list[int] = []
    around: list[int] = []
    for path, depth in zip(found.column("module").to_pylist(), found.column("depth").to_pylist()):
        up = around[depth - 1] if path and 0 < depth <= len(around) else -1
        inside = up >= 0 and path.startswith(paths[up])
        names.append((path[len(paths[up]) :].lstrip("./") if inside else path) or "Outside of modules")
        if path:
            around[depth:] = [len(paths)]
        paths.append(path or "(outside)")
        parent.append(up)
    return told, _made(paths, names, parent, [True] * len(paths), columns_of("modules"), (found,))


def _made(
    paths: list[str],
    names: list[str],
    parent: list[int],
    group: list[bool],
    columns: Sequence[Column],
    tables: Sequence[pa.Table],
) -> pa.Table:
    """A table of nodes; what one of the tables does not have is unknown there. Truth values are 1 or 0 of an operator
    where its group has their number."""
    made: dict[str, Any] = {
        "path": pa.array(paths, pa.string()), "name": pa.array(names, pa.string()),
        "parent": pa.array(parent, pa.int64()), "group": pa.array(group, pa.bool_()),
    }  # fmt: skip
    for column in columns:
        kind = _ARROW[column.kind]
        made[column.key] = pa.chunked_array(
            [
                chunk
                for one in tables
                for chunk in (
                    one.column(column.key).cast(kind).chunks
                    if column.key in one.column_names
                    else [pa.nulls(one.num_rows, kind)]
                )
            ],
            kind,
        )
    return pa.table(made)


REPORTS = {"groups": "group_node", "modules": "module"}
MADE: dict[str, Callable[[Source], tuple[dict[str, Any], pa.Table]]] = {"groups": groups, "modules": modules}
