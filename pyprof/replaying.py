# SPDX-License-Identifier: Apache-2.0
"""`pyprof replay`: a standalone script that runs one recorded operator again, with its shapes, types and strides."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from pyprof.arguments import Parser, timeout
from pyprof.commands import ended
from pyprof.db.calltree import tree
from pyprof.db.operators import shapes
from pyprof.db.source import Source
from pyprof.errors import UsageError
from pyprof.marker import CallMarker, decode
from pyprof.model import Call
from pyprof.prof.replay import script
from pyprof.screen import visible

_ROWS = 30  # of the list


class Replayed(NamedTuple):
    """A call with its arguments. `time`: ns on the device without operators inside it, of all `calls`; on the CPU
    without a GPU."""

    call: Call
    calls: int
    time: int


def _parser() -> Parser:
    parser = Parser(
        prog="pyprof replay",
        description="Print a script that runs one recorded operator again, on random data. Example: pyprof replay "
        "net.sqlite, then pyprof replay net.sqlite --row 0 > mm.py",
    )
    parser.add_argument("file", help="recording, a folder of recordings, or a profile database")
    parser.add_argument(
        "--row", metavar="N", type=int, help="print the script of this row; default: list the rows, by time"
    )
    parser.add_argument(
        "--name", metavar="NAME", help="only operators of this name, such as aten::mm; default: all"
    )
    timeout(parser)
    return parser


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command; returns the exit code."""
    arguments = _parser().parse_args(argv)
    return ended("pyprof replay", lambda: _replay(arguments))


def _replay(arguments: argparse.Namespace) -> None:
    from pyprof.db.store import limited
    from pyprof.session import load

    with limited(arguments.timeout):
        profile = load(arguments.file)
        source = profile.source()
        with source.store.sound():
            found = [one for one in calls(source) if arguments.name in (None, one.call.op)]
    if not found:
        what = f"no operator {arguments.name!r}" if arguments.name else "no operator"
        raise UsageError(
            f"{arguments.file}: {what} with recorded arguments; record shapes, or see `pyprof info`."
        )
    if arguments.row is None:
        print("\n".join(_listed(found, source.gpu)))
        return
    if not 0 <= arguments.row < len(found):
        raise UsageError(f"--row {arguments.row} does not exist; there are 0 to {len(found) - 1}.")
    one = found[arguments.row]
    where = "on the device" if source.gpu else "on the CPU"
    mean = one.time / one.calls / 1000
    told = f"recorded {one.calls} times, {mean:.3f} us a call {where} without operators inside it"
    sys.stdout.write(script(one.call, f"{told}, in {os.path.basename(arguments.file)}"))


def calls(source: Source) -> list[Replayed]:
    """Calls with recorded arguments, equal ones together, by time, then by name and arguments."""
    texts = dict(source.store.rows("select id, text from string"))
    sums: dict[int, list[int]] = {}
    for (worker,) in source.store.rows("select id from worker order by id"):
        found = tree(source.activity(worker), texts)
        said, place, number = np.unique(
            np.where(found.args >= 0, found.args, found.text), return_inverse=True, return_counts=True
        )
        time = np.zeros(len(said), np.int64)
        np.add.at(time, place, found.own["device" if source.gpu else "host"])
        for text, count, length in zip(said.tolist(), number.tolist(), time.tolist()):
            total = sums.setdefault(text, [0, 0])
            total[0] += count
            total[1] += length
    out = []
    for text, (count, length) in sums.items():
        marker = decode(texts[text])
        if isinstance(marker, CallMarker) and marker.call.args:
            out.append((-length, texts[text], Replayed(marker.call, count, length)))
    return [one for _, _, one in sorted(out, key=lambda row: row[:2])]


def _listed(found: list[Replayed], gpu: bool) -> list[str]:
    """The rows with the most time."""
    rows = [("row", "operator", "calls", f"{'GPU' if gpu else 'CPU'} time (ns)", "shapes")]
    for number, one in enumerate(found[:_ROWS]):
        rows.append((str(number), one.call.op, f"{one.calls:,}", f"{one.time:,}", shapes(one.call) or "-"))
    shown = [[visible(cell) for cell in row] for row in rows]
    widths = [max(len(row[i]) for row in shown) for i in range(4)]
    lines = [
        f"{row:>{widths[0]}}  {name:{widths[1]}}  {count:>{widths[2]}}  {time:>{widths[3]}}  {said}"
        for row, name, count, time, said in shown
    ]
    more = len(found) - _ROWS
    return [*lines, *([f"{more} more rows; --name shows those of one operator."] if more > 0 else [])]
