#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What the profile database costs: to make, to aggregate anew, to keep, and to ask.

    python benchmarks/database.py --sizes 1000000,10000000

Recordings are generated (gen_nsys.py) into a temporary folder. Making and aggregating are processes of their own:
CPU-seconds (user and system time after the imports) and peak resident memory. Questions are those of a page on tables,
ids, windows and iterations; each is asked some times after the file was opened, and the median of the wall time counts.
"""

from __future__ import annotations

import argparse
import json
import resource
import sqlite3
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent))

MILLION = 1_000_000
# CPU-seconds and bytes of making, at the sizes the aims are for.
MAKING = {MILLION: (12, 1.5e9), 10 * MILLION: (150, 6e9)}
AGAIN, OPENING, ASKING, FILTERING, PER_KERNEL = 15.0, 1000.0, 50.0, 2000.0, 300.0


def cpu() -> float:
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime


def make(recording: Path, database: Path) -> None:
    """Read a recording, write its database with all statistics, make DLProf's reports of tables."""
    from pyprof.dlprof.options import OF_DLPROF
    from pyprof.facts.build import build, of_trace
    from pyprof.parse import loader
    from pyprof.profiles import load

    begin = cpu()
    build(of_trace(loader.load(recording)), str(database))
    prof = load(database)
    for name in OF_DLPROF:
        if name != "iteration":  # one row per event: a file of its own size
            prof.report(name)
    told(cpu() - begin)


def views(recording: Path, database: Path) -> None:
    """Make the other reports, which look at events, not at statistics."""
    from pyprof.dlprof.options import OF_DLPROF
    from pyprof.profiles import load
    from pyprof.reports import every

    begin = cpu()
    source = (prof := load(database)).source()
    for report in every():
        if report.name not in OF_DLPROF:
            for _ in report.chunks(source):
                pass
    del prof
    told(cpu() - begin)


def again(recording: Path, database: Path) -> None:
    """Cut by another operator, and aggregate half of the iterations."""
    from pyprof.profiles import load

    begin = cpu()
    prof = load(database)
    key = prof.database.rows("select name from operator where type = 'cross_entropy' and direction = 0")[0][0]
    prof.aggregate(0, len(prof.steps) // 2, key)
    told(cpu() - begin)


def range_(recording: Path, database: Path) -> None:
    """Other iterations of the same cut."""
    from pyprof.profiles import load

    begin = cpu()
    prof = load(database)
    count = len(prof.steps)
    prof.aggregate(count // 4, count // 2)
    told(cpu() - begin)


def told(seconds: float) -> None:
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    print(json.dumps({"seconds": seconds, "peak": peak}))


def child(step: str, recording: Path, database: Path) -> tuple[float, float]:
    command = [sys.executable, __file__, "--step", step, str(recording), str(database)]
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode:
        raise SystemExit(f"{step} failed:\n{done.stderr}")
    found = json.loads(done.stdout.splitlines()[-1])
    return found["seconds"], found["peak"]


def questions(database: Path) -> dict[str, tuple[float, Callable[[], object]]]:
    """What a page asks: the aim in ms, and the question."""
    from pyprof import metrics
    from pyprof.facts.steps.aggregation import aggregations
    from pyprof.facts.steps.source import Source
    from pyprof.reports import find
    from pyprof.store.files import Store

    store = Store(database)
    source = Source(store, aggregations(store)[0])
    middle = store.rows("select max(number) / 2 from iteration")[0][0]
    first, last = store.rows("select first_event, last_event from iteration where number = ?", (middle,))[0]
    begin, end = store.rows("select min(start_ns), max(end_ns) from worker")[0]
    low, high = begin + (end - begin) // 2, begin + (end - begin) // 2 + (end - begin) // 1000
    device, stream, longest = store.rows(
        "select device, stream, max(duration_ns) from (select * from event limit 5000)"
    )[0]
    operator = store.rows("select operator from op_stat order by gpu_ns desc limit 1")[0][0]
    ask = store.rows

    def dashboard() -> object:
        fresh = Source(store, source.aggregation)
        return [metric.function(fresh.window) for metric in metrics.METRICS.values()]

    return {
        "metrics of the dashboard": (ASKING, dashboard),
        "operators by type": (ASKING, lambda: find("op_type").table(source)),
        "top 10 operators": (ASKING, lambda: ask(
            """select o.name, s.gpu_ns, s.cpu_ns, s.calls from op_stat s join operator o on o.id = s.operator
               where s.aggregation = 1 order by s.gpu_ns desc limit 10""")),
        "kernels of an operator": (ASKING, lambda: ask(
            """select n.name, s.calls, s.gpu_ns from op_kernel_stat s join kernel_name n on n.id = s.name
               where s.aggregation = 1 and s.operator = ? order by s.gpu_ns desc""", (operator,))),
        "all iterations": (ASKING, lambda: ask(
            "select * from iteration join iteration_part using (iteration_set, worker, number)"
            " where iteration_set = 1")),
        "longest 25 kernels of an iteration": (ASKING, lambda: ask(
            """select e.id, n.short_name, e.duration_ns from event e join kernel_name n on n.id = e.name
               where e.id >= ? and e.id < ? order by e.duration_ns desc limit 25""", (first, last))),
        "kernels of an operator in an iteration": (ASKING, lambda: ask(
            "select id, duration_ns from event where id >= ? and id < ? and operator = ?", (first, last, operator))),
        "events of a stream in a thousandth of the run": (ASKING, lambda: ask(
            """select id, start_ns, duration_ns, name from event
               where device is ? and stream is ? and start_ns >= ? and start_ns < ?""",
            (device, stream, low - longest, high))),
        "names like gemm": (ASKING, lambda: ask("select id from kernel_name where name like '%gemm%'")),
        "filter over all launches": (FILTERING, lambda: ask(
            """select count(*), sum(duration_ns) from event
               where name in (select id from kernel_name where name like '%gemm%')"""
        )),
    }  # fmt: skip


def asked(database: Path) -> None:
    begin = time.perf_counter()
    from pyprof.store.files import Store

    with Store(database) as store:
        assert store.meta
    mark(f"  {'opening':44}", (time.perf_counter() - begin) * 1000, OPENING, "ms wall")
    for name, (aim, question) in questions(database).items():
        times = []
        for _ in range(5):
            begin = time.perf_counter()
            question()
            times.append((time.perf_counter() - begin) * 1000)
        mark(f"  {name:44}", statistics.median(times), aim, "ms wall")


def mark(what: str, value: float, aim: float, unit: str) -> None:
    print(f"{what}{value:10.1f} {unit:12} aim <= {aim:g}{'' if value <= aim else ' MISSED'}")


def sizes_of(database: Path, kernels: int) -> None:
    with sqlite3.connect(f"file:{database}?mode=ro", uri=True) as connection:
        rows = connection.execute("select name, sum(pgsize) from dbstat group by 1 order by 2 desc").fetchall()
    mark(f"  {'bytes per kernel':44}", database.stat().st_size / kernels, PER_KERNEL, "")
    for name, size in rows[:8]:
        print(f"    {name:42}{size / kernels:10.1f}")


def report(kernels: int, folder: Path) -> None:
    recording, database = folder / f"{kernels}.sqlite", folder / f"{kernels}_dldb.sqlite"
    subprocess.run(
        [sys.executable, str(HERE / "gen_nsys.py"), str(recording), "--kernels", str(kernels)],
        check=True, capture_output=True,
    )  # fmt: skip
    print(f"{kernels:,} kernels")
    aim = MAKING.get(kernels)
    for step, what in (("make", "recording to database and DLProf's reports"), ("again", "another key operator"),
                       ("range", "other iterations"), ("views", "the other reports")):  # fmt: skip
        seconds, peak = child(step, recording, database)
        line = f"  {what:44}{seconds:10.1f} CPU s, {peak / 1e9:.2f} GB"
        if step == "make" and aim:
            line += f"  aim <= {aim[0]} CPU s, {aim[1] / 1e9:g} GB"
            line += "" if seconds <= aim[0] and peak <= aim[1] else " MISSED"
        elif step == "again":
            line += f"  aim <= {AGAIN:g} CPU s" + ("" if seconds <= AGAIN else " MISSED")
        print(line, flush=True)
    sizes_of(database, kernels)
    asked(database)
    recording.unlink()
    database.unlink()


STEPS = {"make": make, "again": again, "range": range_, "views": views}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sizes", default="100000,1000000", help="kernels, comma-separated")
    parser.add_argument("--folder", type=Path, help="for the generated files; default: a temporary one")
    parser.add_argument("--step", choices=STEPS, help=argparse.SUPPRESS)
    parser.add_argument("files", nargs="*", type=Path, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.step:
        STEPS[arguments.step](*arguments.files)
        return
    with tempfile.TemporaryDirectory(dir=arguments.folder) as folder:
        for size in arguments.sizes.split(","):
            report(int(size), Path(folder))


if __name__ == "__main__":
    main()
