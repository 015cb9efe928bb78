#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""How much of the time on the device has FLOPs and bytes, and on which basis.

    python benchmarks/shares.py net.sqlite other.sqlite
    python benchmarks/shares.py                          # records every script in examples/

A row is a recording. Shares are of the time of all its kernels (operator events, without a GPU); those of matrix
products, convolutions and attention are of their own time, with the share of the recording's time in brackets. Under
the table stand all operators without exact figures. The aims: every product has exact FLOPs, and the default rule at
most 5 % of a recording's time.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from pyprof.core.model import BASES  # noqa: E402
from pyprof.costs import coverage  # noqa: E402
from pyprof.costs.columns import View  # noqa: E402
from pyprof.costs.unknown_costs import Gap, gaps  # noqa: E402
from pyprof.profiles import load  # noqa: E402

HEAD = f"| recording | rows | ms | FLOPs: {', '.join(BASES)} | bytes: the same | gemm | conv | attention |"
MOST = 0.05  # of the time by the default rule


def record(folder: Path) -> list[Path]:
    """Every example under `pyprof run`."""
    out = []
    for script in sorted((ROOT / "examples").glob("*.py")):
        path = folder / f"{script.stem}.sqlite"
        command = [sys.executable, "-m", "pyprof", "run", "-o", str(path), str(script)]
        environment = os.environ | {"PYTHONPATH": str(ROOT)}
        done = subprocess.run(command, capture_output=True, text=True, env=environment, cwd=folder)
        if done.returncode:
            sys.exit(f"{script.name} failed: {done.stderr}")
        ranks = sorted(folder.glob(f"{script.stem}.rank*.sqlite"))  # its launcher runs no operators
        out += ranks or [path]
    return out


def row(path: Path, view: View) -> tuple[str, bool]:
    """A line of the table, and whether the aims are met."""
    total = max(int(view.rows.duration.sum()), 1)
    entries = {entry.what: entry.parts for entry in coverage.ledger(view)}
    cells = [path.name, str(len(view.rows)), f"{total / 1e6:.1f}"]
    for what in ("FLOPs", "bytes"):
        cells.append(", ".join(f"{100 * ns / total:.1f}" for ns in entries[what].values()))
    exact = coverage.exact_flops(view)
    for rows in (coverage.products(view)[kind] for kind in ("gemm", "conv", "attention")):
        time, known = (int(view.rows.duration[some].sum()) for some in (rows, rows & exact))
        cells.append(f"{100 * known / time:.1f} ({100 * time / total:.1f})" if time else "-")
    met = entries["products"][coverage.INEXACT] == 0 and _default(view) <= MOST * total
    return f"| {' | '.join(cells)} |", met


def _default(view: View) -> int:
    return sum(gap.time for gap in gaps(view.rows, view.costs) if gap.basis == "default")


def _line(gap: Gap, total: int) -> str:
    share = f"{100 * gap.time / total:.2f} % in {gap.rows} rows"
    return f"* {gap.operator}, {share}: {gap.basis}, no exact {gap.lacks}; {gap.why}"


def main(argv: Sequence[str] | None = None) -> int:
    """Print the table; returns the exit code."""
    parser = argparse.ArgumentParser(description="Example: python benchmarks/shares.py net.sqlite")
    parser.add_argument("files", nargs="*", type=Path, help="recordings; default: of every example, made now")
    parser.add_argument("--aims", action="store_true", help="exit code 1 if a recording misses the aims")
    arguments = parser.parse_args(argv)
    with tempfile.TemporaryDirectory() as folder:
        return report(arguments.files or record(Path(folder)), arguments.aims)


def report(files: Sequence[Path], aims: bool) -> int:
    """Table and gaps of the files; 1 if the aims are asked for and missed."""
    print(HEAD, "|---|---|---|---|---|---|---|---|", sep="\n")
    lines, missed = [], []
    for path in files:
        profile = load(path)
        view = View(profile.rows, profile.hardware)
        text, met = row(path, view)
        print(text, flush=True)
        total = max(int(view.rows.duration.sum()), 1)
        found = gaps(view.rows, view.costs)
        lines += ["", f"{path.name}:", *(_line(gap, total) for gap in found)] if found else []
        missed += [] if met else [path.name]
    print(*lines, sep="\n")
    if missed:
        print(f"\nThe aims (all products exact, default at most 5 %) are missed by: {', '.join(missed)}.")
    return int(aims and bool(missed))


if __name__ == "__main__":
    sys.exit(main())
