#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""How fast a recording is parsed, and how much memory that takes.

    python benchmarks/parse.py --sizes 100000,1000000

Recordings are generated (gen_nsys.py) into a temporary folder. Each measurement is a process of its own: kernels per
CPU-second (user and system time of the process from after its imports) and peak resident memory. "SQLite" is SQLite's
own walk over the columns we read, the floor of any reader. Figures of one run compare with each other; the CPU-seconds
of a shared machine vary by a third, so each figure is the best of `--rounds`.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import platform
import resource
import sqlite3
import subprocess
import sys
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent))

VARIANTS: dict[str, tuple[str, ...]] = {  # options of gen_nsys.py
    "classic": (),
    "new markers": ("--markers", "new"),
    "string ids": ("--string-ids",),
    "distinct": ("--distinct",),
    "distinct shapes": ("--distinct-shapes",),
}
MILLION = 1_000_000
# Kernels per CPU-second at a million kernels: what we want on a machine of 2020.
AIMS = {"parse": 130_000, "columns": 230_000, "join": 2_000_000}
MEMORY_AIM = 1.0e9  # bytes, of parse
JOIN_AIM_LARGE = 1_500_000  # at ten million
VARIANT_AIM = 1.5  # times the CPU-seconds of classic


class Figure(NamedTuple):
    """One measurement: CPU-seconds, of which the kernel's, peak resident bytes, kernels."""

    seconds: float
    system: float
    peak: int
    kernels: int

    @property
    def rate(self) -> float:
        return self.kernels / self.seconds if self.seconds else float("inf")


class Clock:
    """CPU time of this process from its making to `stop`, and how many kernels were handled."""

    def __init__(self) -> None:
        self.seconds = self.system = 0.0
        self.kernels = 0
        self._begin = resource.getrusage(resource.RUSAGE_SELF)

    def stop(self, kernels: int) -> Clock:
        now = resource.getrusage(resource.RUSAGE_SELF)
        self.system = now.ru_stime - self._begin.ru_stime
        self.seconds = now.ru_utime - self._begin.ru_utime + self.system
        self.kernels = kernels
        return self


# Measurements. Each takes a path and returns its clock; imports happen before that starts.


def measure_sqlite(path: Path) -> Clock:
    columns = {
        "NVTX_EVENTS": ("start", "end", "eventType", "globalTid", "textId", "text"),
        "CUPTI_ACTIVITY_KIND_RUNTIME": ("start", "end", "globalTid", "correlationId"),
        "CUPTI_ACTIVITY_KIND_KERNEL": (
            "start", "end", "deviceId", "contextId", "streamId", "correlationId", "globalPid", "graphNodeId",
            "demangledName", "gridX", "gridY", "gridZ", "blockX", "blockY", "blockZ", "registersPerThread",
            "staticSharedMemory", "dynamicSharedMemory",
        ),
        "StringIds": ("id", "value"),
    }  # fmt: skip
    clock = Clock()
    connection = sqlite3.connect(f"file:{path}?mode=ro", uri=True)
    kernels = 0
    for table, names in columns.items():
        # total, not sum: thread ids are so large that their sum leaves 64 bits
        cells = [f"sum(length({n}))" if n in ("text", "value") else f"total({n})" for n in names]
        count = connection.execute(f"select count(*), {', '.join(cells)} from {table}").fetchone()[0]
        kernels = count if table.endswith("KERNEL") else kernels
    return clock.stop(kernels)


def measure_read(path: Path) -> Clock:
    from pyprof.parse import loader

    _load_all()
    clock = Clock()
    trace = loader.load(path)
    return clock.stop(len(trace.gpu))


def measure_join(path: Path) -> Clock:
    import numpy as np

    from pyprof.parse import loader
    from pyprof.parse.backward_links import pair
    from pyprof.parse.join import link, nest_spans

    _load_all()
    trace = loader.load(path)
    process = np.array([thread.process for thread in trace.threads], np.int64)
    clock = Clock()
    found = nest_spans(trace)
    launch = link(trace.gpu, trace.launches, process)
    launch = launch[launch >= 0]
    found.enclosing(trace.launches.thread[launch], trace.launches.start[launch])
    pair(trace, found)
    return clock.stop(len(trace.gpu))


def measure_rows(path: Path) -> Clock:
    from pyprof.parse import loader
    from pyprof.parse.rows import rows

    _load_all()
    trace = loader.load(path)
    clock = Clock()
    found = rows(trace)
    return clock.stop(len(found))


def measure_text(path: Path) -> Clock:
    from pyprof.core import netdict
    from pyprof.parse import loader
    from pyprof.parse.rows import rows

    _load_all()
    found = rows(loader.load(path))
    with open(os.devnull, "wb") as out:
        clock = Clock()
        out.writelines(netdict.blocks(found))
        return clock.stop(len(found))


def measure_parse(path: Path) -> Clock:
    from pyprof.commands.main import start

    _load_all()
    with open(os.devnull, "w", encoding="utf-8") as out:
        sys.stdout, stdout = out, sys.stdout
        clock = Clock()
        code = start("parse", [str(path)])
        clock.stop(0)
        sys.stdout = stdout
    if code:
        raise SystemExit(code)
    count = sqlite3.connect(path).execute("select count(*) from CUPTI_ACTIVITY_KIND_KERNEL").fetchone()[0]
    clock.kernels = int(count)
    return clock


def measure_columns(path: Path) -> Clock:
    from pyprof import profiles
    from pyprof.costs.columns import COLUMNS, View

    _load_all()
    clock = Clock()
    view = View(profiles.load(path).rows)
    for column in COLUMNS.values():
        column.cells(view)
    return clock.stop(len(view.rows))


def _load_all() -> None:
    """Import what the code under test imports when it is first used."""
    import pyarrow.compute  # noqa: F401

    import pyprof.costs.columns  # noqa: F401
    from pyprof.core.registry import load_folder
    from pyprof.parse import formats

    load_folder(formats.__name__)
    with contextlib.suppress(ImportError):
        import adbc_driver_sqlite.dbapi  # noqa: F401


MEASURES: dict[str, tuple[str, Callable[[Path], Clock]]] = {
    "sqlite": ("SQLite's own walk", measure_sqlite),
    "read": ("read: loader.load", measure_read),
    "join": ("join: nest_spans, link, enclosing, pair", measure_join),
    "rows": ("rows: join, sites, order", measure_rows),
    "text": ("text: net.dict to /dev/null", measure_text),
    "parse": ("parse with text, end to end", measure_parse),
    "columns": ("parse + prof into columns", measure_columns),
}


def run(measure: str, path: Path, rounds: int) -> Figure:
    """The best of some processes, by CPU time; the memory is the largest seen."""
    figures = []
    for _ in range(rounds):
        command = [sys.executable, str(Path(__file__).resolve()), "--measure", measure, str(path)]
        done = subprocess.run(command, capture_output=True, text=True)
        if done.returncode:
            raise SystemExit(f"{measure} of {path.name} failed:\n{done.stderr}")
        figures.append(Figure(**json.loads(done.stdout.splitlines()[-1])))
    best = min(figures)
    return Figure(best.seconds, best.system, max(f.peak for f in figures), best.kernels)


def child(measure: str, path: Path) -> None:
    clock = MEASURES[measure][1](path)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    figure = Figure(clock.seconds, clock.system, peak, clock.kernels)
    print(json.dumps(figure._asdict()))


# The report.


def table(kernels: int, figures: dict[str, Figure]) -> str:
    """What one recording took."""
    floor = figures["sqlite"].seconds
    lines = [f"{'':36}{'CPU s':>8}{'system':>8}{'kernels/CPU-s':>16}{'x SQLite':>10}{'peak MB':>9}  aim"]
    for name, figure in figures.items():
        row = f"{MEASURES[name][0]:36}{figure.seconds:8.2f}{figure.system:8.2f}{figure.rate:16,.0f}"
        row += f"{figure.seconds / floor:10.1f}"
        lines.append(f"{row}{figure.peak / 1e6:9.0f}  {_aim(name, kernels, figure)}".rstrip())
    return "\n".join(lines)


def _aim(name: str, kernels: int, figure: Figure) -> str:
    aim = AIMS.get(name)
    if name == "join" and kernels > 5 * MILLION:
        aim = JOIN_AIM_LARGE
    elif kernels < MILLION // 2 or kernels > 5 * MILLION:
        return ""
    parts = [f">= {aim:,}{'' if figure.rate >= aim else ' MISSED'}"] if aim else []
    if name == "parse":
        parts.append(f"<= {MEMORY_AIM / 1e6:.0f} MB{'' if figure.peak <= MEMORY_AIM else ' MISSED'}")
    return ", ".join(parts)


def variants_table(figures: dict[str, dict[str, Figure]]) -> str:
    """CPU-seconds of each variant, and as ratio to classic."""
    names = ("sqlite", "read", "rows", "parse", "columns")
    lines = [f"{'CPU s (x classic)':20}" + "".join(f"{name:>16}" for name in names) + f"{'peak MB':>9}  aim"]
    classic = figures["classic"]
    for variant, found in figures.items():
        ratios = [found[name].seconds / classic[name].seconds for name in names]
        cells = [f"{found[name].seconds:.2f} ({ratio:.2f}x)" for name, ratio in zip(names, ratios)]
        worst = max(ratios[-2:])
        aim = "" if variant == "classic" else f"<= {VARIANT_AIM}x{'' if worst <= VARIANT_AIM else ' MISSED'}"
        peak = found["parse"].peak / 1e6
        lines.append(f"{variant:20}{''.join(f'{c:>16}' for c in cells)}{peak:9.0f}  {aim}".rstrip())
    return "\n".join(lines)


def linearity(figures: dict[int, dict[str, Figure]]) -> str:
    """CPU time per kernel, and as ratio to the size before."""
    sizes = sorted(figures)
    lines = [f"{'CPU us per kernel':36}" + "".join(f"{size:>18,}" for size in sizes)]
    for name in MEASURES:
        cells, before = [], 0.0
        for size in sizes:
            each = 1e6 / figures[size][name].rate
            cells.append(f"{each:.2f}" + (f" ({each / before:.2f}x)" if before else ""))
            before = each
        lines.append(f"{MEASURES[name][0]:36}" + "".join(f"{cell:>18}" for cell in cells))
    return "\n".join(lines)


def machine() -> str:
    import numpy
    import pyarrow

    versions = f"Python {platform.python_version()}, numpy {numpy.__version__}, pyarrow {pyarrow.__version__}"
    return f"{os.cpu_count()} cores, {platform.machine()}, {versions}, SQLite {sqlite3.sqlite_version}"


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description="Example: parse.py --sizes 100000,1000000 --rounds 3")
    parser.add_argument("--sizes", default="100000,1000000", help="kernels of each recording; default: %(default)s")
    parser.add_argument(
        "--variants",
        type=int,
        metavar="N",
        help="kernels of the variants, 0: none; default: 1000000 if that is a size",
    )
    parser.add_argument("--rounds", type=int, default=3, help="processes per measurement; default: %(default)s")
    parser.add_argument("--folder", type=Path, help="where recordings are generated; default: a temporary folder")
    parser.add_argument("--measure", nargs=2, metavar=("WHAT", "FILE"), help="one measurement, in this process")
    return parser


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command; returns the exit code."""
    arguments = _parser().parse_args(argv)
    if arguments.measure:
        child(arguments.measure[0], Path(arguments.measure[1]))
        return 0
    sizes = sorted({int(size) for size in arguments.sizes.split(",")})
    of_variants = arguments.variants
    if of_variants is None:
        of_variants = MILLION if MILLION in sizes else 0
    print(machine(), flush=True)
    with tempfile.TemporaryDirectory(prefix="pyprof-bench-", dir=arguments.folder) as folder:
        path = Path(folder) / "net.sqlite"

        def measure(kernels: int, names: Sequence[str], rounds: int, options: Sequence[str] = ()) -> dict[str, Figure]:
            # In a process of its own: a child's peak memory is never below what its parent had.
            command = [
                sys.executable,
                str(HERE / "gen_nsys.py"),
                str(path),
                "--kernels",
                str(kernels),
                *options,
            ]
            subprocess.run(command, check=True, stderr=subprocess.DEVNULL)
            found = {name: run(name, path, rounds) for name in names}
            path.unlink()  # before the next one is generated: they are large
            return found

        by_size = {}
        for size in sizes:
            by_size[size] = measure(size, tuple(MEASURES), 1 if size > 5 * MILLION else arguments.rounds)
            kernels = by_size[size]["parse"].kernels
            print(f"\n{kernels:,} kernels\n{table(size, by_size[size])}", flush=True)
        if len(sizes) > 1:
            print(f"\nLinear?\n{linearity(by_size)}", flush=True)
        if of_variants:
            by_variant = {}
            for variant, options in VARIANTS.items():
                rounds = 1 if variant == "distinct shapes" else arguments.rounds
                names = ("sqlite", "read", "rows", "parse", "columns")
                by_variant[variant] = measure(of_variants, names, rounds, options)
            print(f"\nVariants at {of_variants:,} kernels\n{variants_table(by_variant)}", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
