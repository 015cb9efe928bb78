# SPDX-License-Identifier: Apache-2.0
"""Reports that are trees, as tables of nodes: parents come before children.

`path` is the full name of a node, `name` its addition to the parent's, `parent` the parent's index (-1 for a root).
The other columns are the report's.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pyarrow as pa

from pyprof.facts.steps.source import Source
from pyprof.reports import Column, find
from pyprof.views.column_table import report_table

_OUTSIDE = "unassociated"
_SHAPE = ("name", "level", "module", "depth")  # columns that the tree itself contains
_ARROW = {int: pa.int64(), float: pa.float64(), bool: pa.bool_(), str: pa.string()}


def columns_of(name: str) -> tuple[Column, ...]:
    """Return the columns of the nodes of a tree, without their place in it."""
    return tuple(column for column in find(REPORTS[name]).columns if column.key not in _SHAPE)


def groups(source: Source) -> tuple[dict[str, Any], pa.Table]:
    """Return groups of operators, with the operators of each below it. Names of groups end with a slash, / is
    everything; an operator belongs to the longest group that its name begins with."""
    columns = columns_of("groups")
    needed = {"name", "op_id", *(column.key for column in columns)}
    detail = find("detail")
    group_info, tree = report_table(find("group_node"), source)
    op_info, ops = report_table(
        detail._replace(columns=tuple(entry for entry in detail.columns if entry.key in needed)), source
    )
    paths: list[str] = tree.column("name").to_pylist()
    place = {path: number for number, path in enumerate(paths)}
    parent = [_parent_group(path, place) for path in paths]
    names = ["/" if path == "/" else f"{path.rstrip('/').rpartition('/')[2]}/" for path in paths]
    outside = place.get(f"{_OUTSIDE}/", -1)
    for path, op_id in zip(ops.column("name").to_pylist(), ops.column("op_id").to_pylist()):
        parent_index = outside if path.startswith(_OUTSIDE) and outside >= 0 else _parent_group(path, place)
        parent.append(parent_index)
        names.append(path.rpartition("/")[2] or path)
        paths.append(f"{path} {op_id}")
    group = [True] * tree.num_rows + [False] * ops.num_rows
    complete = group_info["complete"] and op_info["complete"]
    return {"complete": complete}, _build_table(paths, names, parent, group, columns, (tree, ops))


def _parent_group(path: str, place: dict[str, int]) -> int:
    """Return the group that contains a path; -1 for none."""
    end = path.rstrip("/").rfind("/")
    while end >= 0:
        index = place.get(path[: end + 1])
        if index is not None:
            return index
        end = path.rfind("/", 0, end)
    return -1 if path == "/" else place.get("/", -1)


def modules(source: Source) -> tuple[dict[str, Any], pa.Table]:
    """Return modules by their depth."""
    info, table = report_table(find("module"), source)
    paths: list[str] = []
    names: list[str] = []
    parent: list[int] = []
    around: list[int] = []
    for path, depth in zip(table.column("module").to_pylist(), table.column("depth").to_pylist()):
        up = around[depth - 1] if path and 0 < depth <= len(around) else -1
        inside = up >= 0 and path.startswith(paths[up])
        names.append((path[len(paths[up]) :].lstrip("./") if inside else path) or "Outside modules")
        if path:
            around[depth:] = [len(paths)]
        paths.append(path or "(outside)")
        parent.append(up)
    return info, _build_table(paths, names, parent, [True] * len(paths), columns_of("modules"), (table,))


def _build_table(
    paths: list[str],
    names: list[str],
    parent: list[int],
    group: list[bool],
    columns: Sequence[Column],
    tables: Sequence[pa.Table],
) -> pa.Table:
    """Return a table of nodes; values that one of the tables lacks are unknown there. Booleans are 1 or 0 for an
    operator where its group has a count."""
    arrays: dict[str, Any] = {
        "path": pa.array(paths, pa.string()),
        "name": pa.array(names, pa.string()),
        "parent": pa.array(parent, pa.int64()),
        "group": pa.array(group, pa.bool_()),
    }
    for column in columns:
        kind = _ARROW[column.kind]
        arrays[column.key] = pa.chunked_array(
            [
                chunk
                for table in tables
                for chunk in (
                    table.column(column.key).cast(kind).chunks
                    if column.key in table.column_names
                    else [pa.nulls(table.num_rows, kind)]
                )
            ],
            kind,
        )
    return pa.table(arrays)


# Columns of which a total means something: of the roots, or of all nodes where a node's value excludes its children.
SUMS = {
    "groups": ("calls", "cpu", "gpu", "overhead", "idle", "tc"),
    "modules": ("host_total_ns", "host_self_ns", "device_total_ns", "device_self_ns"),
}
REPORTS = {"groups": "group_node", "modules": "module"}
TREES: dict[str, Callable[[Source], tuple[dict[str, Any], pa.Table]]] = {"groups": groups, "modules": modules}
