# SPDX-License-Identifier: Apache-2.0
"""Trees that the server unfolds, against trees of plain Python objects."""

from __future__ import annotations

import random
from typing import Any

import pyarrow as pa
import pytest

from pyprof import profiles
from pyprof.views.tree import Tree
from pyprof.views.tree_reports import columns_of
from tests.server.conftest import HOSTILE, Asking


class Plain:
    """A node by hand."""

    def __init__(self, place: int, name: str, above: Plain | None, gpu: int | None):
        self.place, self.name, self.gpu, self.inside = place, name, gpu, list[Plain]()
        self.path: str = f"{above.path}{name}" if above else name
        if above:
            above.inside.append(self)

    def everything(self) -> list[Plain]:
        return [self, *(one for child in self.inside for one in child.everything())]

    def fits(self, text: str) -> bool:
        return text in self.name or self.path.endswith(text) or any(one.fits(text) for one in self.inside)


def plain(count: int, seed: int) -> list[Plain]:
    """A tree of so many nodes below one root; some have no figure, some the same."""
    draw = random.Random(seed)
    out = [Plain(0, "/", None, 7)]
    for place in range(1, count):
        above = out[max(0, place - draw.randrange(1, 40))] if draw.random() < 0.9 else out[0]
        gpu = None if draw.random() < 0.1 else draw.randrange(30)
        out.append(Plain(place, f"{draw.choice(['conv', 'mm', 'relu'])}{place}/", above, gpu))
    return out


def made(nodes: list[Plain]) -> Tree:
    """The same as the server has it."""
    parent = {id(child): one.place for one in nodes for child in one.inside}
    unknown: dict[str, Any] = {c.key: pa.nulls(len(nodes), pa.int64()) for c in columns_of("groups")}
    table = pa.table(
        {"path": [one.path for one in nodes], "name": [one.name for one in nodes],
         "parent": pa.array([parent.get(id(one), -1) for one in nodes], pa.int64()),
         "group": [True] * len(nodes)} | unknown | {"gpu": pa.array([one.gpu for one in nodes], pa.int64())}
    )  # fmt: skip
    return Tree(({"complete": True}, table), "groups")


def unfolded(nodes: list[Plain], open_: set[str], sort: str, search: str) -> list[str]:
    """Paths as they are shown, by recursion."""

    def key(one: Plain) -> tuple[Any, ...]:
        if sort == "name":
            return one.name.casefold(), one.place
        if one.gpu is None:
            return 1, 0, one.place
        return 0, -one.gpu if sort == "-gpu" else one.gpu, one.place

    def walk(some: list[Plain]) -> list[str]:
        out = []
        for one in sorted(some, key=key):
            if search and not one.fits(search):
                continue
            out.append(one.path)
            if search or one.path in open_:
                out += walk(one.inside)
        return out

    return walk(nodes[:1])


def pages(tree: Tree, size: int, **asked: Any) -> list[str]:
    """All pages of a question."""
    out: list[str] = []
    while True:
        found = tree.page(len(out), size, **asked)
        assert len(found.nodes) == len(found.rows) <= size
        out += [node.path for node in found.nodes]
        if not found.nodes:
            assert found.filtered == len(out)
            assert found.total == len(tree.paths)
            return out


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("sort", ["-gpu", "gpu", "name"])
def test_rows_are_those_of_a_walk(seed: int, sort: str):
    nodes = plain(300, seed)
    tree, draw = made(nodes), random.Random(seed)
    opened = {one.path for one in nodes if draw.random() < 0.7} | {"/"}
    keys = dict(zip(tree.paths, tree.keys))
    asked = {"sort": sort, "search": "", "open": ",".join(keys[path] for path in opened)}
    assert pages(tree, 37, **asked) == unfolded(nodes, opened, sort, "")
    closed = {one.path for one in nodes} - opened
    assert pages(tree, 50, **asked | {"open": ",".join(["all", *(keys[path] for path in closed)])}) == unfolded(
        nodes, opened, sort, ""
    )
    for text in ("conv1", "/mm", "relu299/", nodes[-1].path[-14:], "nothing"):  # the fourth is of two names
        assert pages(tree, 100, **asked | {"search": text}) == unfolded(nodes, opened, sort, text), text


def test_what_is_open_by_itself_and_what_is_said():
    nodes = plain(60, 1)
    tree = made(nodes)
    asked = {"sort": "-gpu", "search": ""}
    first = tree.page(0, 100, open=None, **asked)
    assert [node.path for node in first.nodes] == unfolded(nodes, {"/"}, "-gpu", "")
    assert first.open == tree.keys[0]
    assert first.nodes[0].open
    assert [node.level for node in first.nodes] == [1] + [2] * (len(first.nodes) - 1)
    assert all(node.inside == bool(nodes[tree.at[node.key]].inside) for node in first.nodes)
    assert [node.path for node in tree.page(0, 100, open="none", **asked).nodes] == ["/"]
    assert tree.page(0, 100, open="all", **asked).filtered == 60
    assert tree.page(0, 100, open="0123456789ab", **asked).filtered == 1  # of another aggregation
    gpu = next(at for at, column in enumerate(first.columns) if column.key == "gpu")
    assert [row[gpu] for row in first.rows] == [nodes[tree.at[node.key]].gpu for node in first.nodes]


def test_no_node_at_all():
    found = made([]).page(0, 25, "-gpu", "", None)
    assert (found.nodes, found.rows, found.total, found.open) == ([], [], 0, "none")


def test_many_nodes_are_rows_of_a_page():
    """Whatever is open of 50,000 nodes, an answer has the rows that are shown, and no more."""
    nodes = plain(50_000, 3)
    tree = made(nodes)
    every = unfolded(nodes, {one.path for one in nodes}, "-gpu", "")
    for offset in (0, 31_234, 49_990):
        found = tree.page(offset, 25, "-gpu", "", "all")
        assert [node.path for node in found.nodes] == every[offset : offset + 25]
        assert len(found.model_dump_json()) < 40_000
        assert found.filtered == 50_000


def test_groups_of_a_profile(client: Asking, prof: profiles.Profile):
    found = client.json("/api/trees/groups", open="all", limit=1000)
    nodes = found["nodes"]
    groups = [node for node in nodes if node["group"]]
    assert {node["path"] for node in groups} == set(prof.report("group_node")["name"])
    ops = prof.report("detail")
    assert sorted(node["path"] for node in nodes if not node["group"]) == sorted(
        f"{name} {op_id}" for name, op_id in zip(ops["name"], ops["op_id"])
    )
    above: list[str] = []
    longest = {node["path"] for node in groups}
    for node in nodes:
        del above[node["level"] - 1 :]
        if above:
            inside = [path for path in longest if node["path"].startswith(path) and path != node["path"]]
            outside = node["path"].startswith("unassociated") and not node["group"]
            assert above[-1] == ("unassociated/" if outside else max(inside, key=len, default="/")), node
        above.append(node["path"])
    keys = [column["key"] for column in found["columns"]]
    cells = {node["path"]: dict(zip(keys, row)) for node, row in zip(nodes, found["rows"])}
    for _, row in ops.iterrows():
        mine = cells[f"{row['name']} {row['op_id']}"]
        assert (mine["gpu"], mine["cpu"], mine["calls"]) == (row["gpu"], row["cpu"], row["calls"])
        assert mine["eligible"] == int(row["eligible"])  # a number in a column of numbers
    assert any(HOSTILE in path for path in cells)
    assert cells["/"]["gpu"] == sum(ops["gpu"])


def test_modules_of_a_profile(client: Asking, prof: profiles.Profile):
    found = client.json("/api/trees/modules", open="all", limit=100)
    shown = [(node["level"], node["name"], node["path"]) for node in found["nodes"]]
    assert (1, "net", "net") in shown
    at = shown.index((2, "first", "net.first"))
    assert shown[at - 1] == (1, "net", "net")
    assert shown[at + 1] == (3, "act", "net.first.act")
    assert len(shown) == len(prof.report("module"))


@pytest.mark.parametrize(
    ("asked", "parameter"),
    [
        ({"open": "all,no"}, "open"),
        ({"open": "0123456789AB"}, "open"),
        ({"sort": "path"}, "sort"),
        ({"levels": "1"}, "levels"),
    ],
)
def test_parameters_that_are_wrong(client: Asking, asked: dict[str, str], parameter: str):
    assert client.json("/api/trees/groups", 422, **asked)["parameter"] == parameter


def test_trees_that_are_none(client: Asking):
    client.json("/api/trees/kernels", 422)
