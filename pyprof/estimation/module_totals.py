# SPDX-License-Identifier: Apache-2.0
"""Cost totals of a script by module: `pyprof estimate script.py`, `python -m pyprof estimate script.py`.

The script runs once, without torch's profiler. A line is a module with everything inside it: parameters, FLOPs of
its calls and of their backward parts, bytes, share of all forward FLOPs, number of calls, and the number of those
without FLOPs. FLOPs are executed ones; a fused multiply-add is 2. A module that runs twice counts twice, its
parameters once.

>>> si(4.089e9), si(999), si(25_557_032)
('4.09 G', '999', '25.6 M')
"""

from __future__ import annotations

import csv
import sys
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from pyprof.core.model import NO_MODULE
from pyprof.core.registry import load_module
from pyprof.core.units import si
from pyprof.costs.cost import lookup
from pyprof.estimation.calls import Estimated, costs, warn

HEADINGS = ("module", "params", "forward", "backward", "bytes", "share", "calls", "unknown")
CSV = (
    "depth", "module", "params", "flops", "flops_backward", "bytes", "share", "calls", "unknown",
    "flops_dense", "flops_dense_backward",
)  # fmt: skip


@dataclass
class Node:
    """A module with everything inside it. Sums include known values only; `unknown` counts calls without FLOPs."""

    name: str
    path: str
    params: int = 0
    flops: int = 0
    backward: int = 0
    bytes: int = 0
    calls: int = 0
    unknown: int = 0
    dense: int = 0
    dense_backward: int = 0
    inside: dict[str, Node] = field(default_factory=dict)

    def child(self, name: str, path: str) -> Node:
        """Return the module of this name inside this one."""
        return self.inside.setdefault(name, Node(name, path))

    def add(self, estimated: Estimated) -> None:
        """Add one call."""
        backward = estimated.backward
        self.calls += 1
        self.unknown += estimated.cost.flops is None
        self.flops += estimated.cost.flops or 0
        self.bytes += estimated.cost.bytes or 0
        self.backward += (backward.flops or 0) if backward is not None else 0
        self.dense += estimated.cost.flops_dense or 0
        self.dense_backward += (backward.flops_dense or 0) if backward is not None else 0


def tree(calls: Iterable[Estimated], parameters: dict[tuple[str, str], int]) -> Node:
    """Return calls and parameters by (class of the outermost module, path) as a tree; its root is the whole run."""
    top = Node("total", "")
    for estimated in calls:
        for node in _down(top, estimated.noted.root, estimated.noted.module):
            node.add(estimated)
    for (root, path), count in parameters.items():
        for node in _down(top, root, path):
            node.params += count
    return top


def _down(top: Node, root: str, path: str) -> Iterator[Node]:
    """Yield the nodes from the root to a module."""
    yield top
    node = top.child(root or NO_MODULE, root)
    yield node
    if path == root:
        return
    whole = ""
    for name in path.removeprefix(f"{root}.").split("."):
        whole = f"{whole}.{name}" if whole else name
        node = node.child(name, whole)
        yield node


def lines(top: Node, depth: int) -> Iterator[tuple[int, Node]]:
    """Yield depth and node, parents first, in order of the first call; calls outside of modules and the total come
    last."""

    def walk(node: Node, level: int) -> Iterator[tuple[int, Node]]:
        for child in sorted(node.inside.values(), key=lambda item: item.name == NO_MODULE):
            if level < depth:
                yield level, child
                yield from walk(child, level + 1)

    yield from walk(top, 0)
    yield 0, top


def text(top: Node, depth: int) -> Iterator[str]:
    """Yield the tree with aligned columns."""
    table = [list(HEADINGS)]
    for level, node in lines(top, depth):
        share = f"{100 * node.flops / top.flops:.1f} %" if top.flops else "-"
        sizes = [si(n) for n in (node.params, node.flops, node.backward, node.bytes)]
        table.append(["  " * level + node.name, *sizes, share, str(node.calls), str(node.unknown or "-")])
    widths = [max(map(len, column)) for column in zip(*table)]
    for i, row in enumerate(table):
        if i == len(table) - 1:
            yield "-" * (sum(widths) + 2 * len(widths) - 2)
        first, *rest = row
        yield "  ".join([first.ljust(widths[0]), *(cell.rjust(w) for cell, w in zip(rest, widths[1:]))])


def rows(top: Node, depth: int) -> Iterator[tuple[object, ...]]:
    """Yield the tree as rows of `CSV`: exact numbers, share between 0 and 1."""
    for level, node in lines(top, depth):
        path = "total" if node is top else node.path or NO_MODULE
        share = f"{node.flops / top.flops:.6f}" if top.flops else ""
        yield (
            -1 if node is top else level, path, node.params, node.flops, node.backward, node.bytes, share,
            node.calls, node.unknown, node.dense, node.dense_backward,
        )  # fmt: skip


def unknown(calls: Iterable[Estimated]) -> str:
    """Return the names of calls without FLOPs, the most frequent first, "" if there are none."""
    counts = Counter(
        f"{call.op if '::' in call.op else f'{call.mod}.{call.op}'}"
        + ("" if lookup(call).basis in ("unknown", "default") else " (FLOPs depend on data)")
        for call in (estimated.noted.call for estimated in calls if estimated.cost.flops is None)
    )
    return ", ".join(f"{name} ×{count}" if count > 1 else name for name, count in counts.most_common())


def run(script: str, arguments: list[str], depth: int, as_csv: bool) -> int:
    """Run a script and print its totals; return the script's exit code."""
    observe, runs = load_module("pyprof.capture.observer"), load_module("pyprof.capture.run")
    shutdown = load_module("pyprof.capture.controller").shutdown
    try:
        with runs.as_main(script, arguments) as execute, observe.observing() as notes:
            code = int(execute())
    finally:
        shutdown()  # undo what the script has initialized
    warn(notes)
    estimates = costs(notes.rows)
    top = tree(estimates, notes.parameters)
    sys.stdout.flush()
    if as_csv:
        writer = csv.writer(sys.stdout, lineterminator="\n")
        writer.writerow(CSV)
        writer.writerows(rows(top, depth))
    else:
        print("\n".join(text(top, depth)))
    missing = unknown(estimates)
    if missing:
        print(f"pyprof: without FLOPs: {missing}.", file=sys.stderr)
    return code
