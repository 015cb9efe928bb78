# SPDX-License-Identifier: Apache-2.0
"""False alarms and detections of the gate on recordings: `python benchmarks/gate.py [FOLDER]`.

Every try makes two runs from the iterations of one recording. Halves: its iterations are divided at random into two
halves. Modelled, for recordings that are too short for that: each run has so many normally distributed iterations,
whose figures have the means, variances and correlations of the recorded ones. In either case nothing changed, so that
a failed condition is a false alarm. For a detection, one operator of the second run takes so many percent longer, and
so do the step and its busy time; it is found if the gate names it. Each operator has its turn.

Beside the gate stand a bootstrap for each figure with Holm's correction, and the gate with a stricter rule: the lower
bound has to exceed the limit, instead of 0.

FOLDER: recordings of others (as for the tests, PYPROF_TEST_DATA). Those of tests/traces/gpu are always used, and three
programs on the CPU are recorded anew.
"""

from __future__ import annotations

import argparse
import math
import os
import statistics
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pandas as pd

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

import pyprof
from pyprof.gate import verdict
from pyprof.gate.conditions import parse
from pyprof.gate.significance import enough
from pyprof.reports.per_iteration import BUSY, STEP
from pyprof.session import Profile

CONDITIONS = [parse(text) for text in ("step_time>2%", "busy>2%", "op:*>1%", "kernel:*>1%")]
OF_OPERATORS = 2  # place of op:* in CONDITIONS
RESAMPLES = 2000
LEAST = 3  # iterations
PUBLISHED = (
    "kineto/resnet50_v100_6steps.pt.trace.json.gz",
    "kineto/resnet50_v100_num_workers_4.pt.trace.json.gz",
    "kineto/v100_216k_events.json.gz",
    "kineto/nccl_a100_rank0of2.json.gz",
    "kineto/mi300_resnet_act_checkpoint.json.gz",
)
OWN = ("transformer_bf16", "resnet_channels_last", "loader_workers", "operators", "generation", "compiled_bf16")


def programs(folder: Path, iterations: int) -> Iterator[tuple[str, Path]]:
    """Record small programs on the CPU."""
    import torch
    from torch import nn

    torch.set_num_threads(1)
    models = {
        "CPU perceptron": (
            nn.Sequential(nn.Linear(256, 512), nn.ReLU(), nn.Linear(512, 256)),
            torch.randn(64, 256),
        ),
        "CPU convolutions": (
            nn.Sequential(nn.Conv2d(3, 16, 3), nn.ReLU(), nn.Conv2d(16, 16, 3), nn.Flatten(), nn.LazyLinear(10)),
            torch.randn(4, 3, 24, 24),
        ),
        "CPU transformer": (nn.TransformerEncoderLayer(64, 4, 128, batch_first=True), torch.randn(4, 32, 64)),
    }
    for name, (model, data) in models.items():
        model(data)
        optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
        path = folder / f"{name.replace(' ', '_')}.sqlite"
        with pyprof.profile(str(path)) as recording:
            for _ in range(iterations):
                optimizer.zero_grad()
                model(data).sum().backward()
                optimizer.step()
                recording.step()
        yield name, path


def recordings(folder: Path | None, scratch: Path, iterations: int) -> Iterator[tuple[str, Path]]:
    """Yield recordings with three iterations or more."""
    for name in PUBLISHED if folder else ():
        if (folder / name).exists():
            yield name.split("/")[1].split(".")[0], folder / name
    for name in OWN:
        yield f"H100 {name}", ROOT / "tests/traces/gpu" / f"{name}.pt.trace.json.gz"
    if iterations:
        yield from programs(scratch, iterations)


def pair(rows: pd.DataFrame, modelled: int, rng: np.random.Generator) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Return two runs: halves of the iterations, or so many iterations with their means and covariances."""
    if not modelled:
        order = rng.permutation(len(rows))
        half = len(rows) // 2
        return rows.iloc[np.sort(order[:half])], rows.iloc[np.sort(order[half:])]
    mean = rows.mean()
    deviations = (rows - mean).to_numpy() / np.sqrt(len(rows) - 1)
    first, second = (
        pd.DataFrame(
            np.maximum(mean.to_numpy() + rng.standard_normal((modelled, len(rows))) @ deviations, 0.0),
            columns=rows.columns,
        )
        for _ in range(2)
    )
    return first, second


def inject(rows: pd.DataFrame, column: str, share: float) -> pd.DataFrame:
    """Return a run in which an operator takes longer by a share."""
    more = share * rows[column]
    return rows.assign(**{name: rows[name] + more for name in (column, STEP, BUSY)})


def bootstrap(base: pd.DataFrame, other: pd.DataFrame, table: verdict.Table, rng: np.random.Generator) -> set[str]:
    """Return the figures that fail by a bootstrap of the ratio of the means, with Holm's correction."""
    p, change = {}, {}
    draws = [rng.integers(len(side), size=(RESAMPLES, len(side))) for side in (base, other)]
    for condition, names in zip(CONDITIONS, table.columns):
        for key in names.values():
            before, after = base[key].to_numpy(), other[key].to_numpy()
            ratios = after[draws[1]].mean(axis=1) / before[draws[0]].mean(axis=1) - 1
            p[key] = (1 + (ratios <= 0).sum()) / (RESAMPLES + 1)
            change[key] = after.mean() / before.mean() - 1 - condition.limit
    failed: set[str] = set()
    for rank, key in enumerate(sorted(p, key=lambda key: p[key])):
        if p[key] * (len(p) - rank) > 0.025:
            break
        if change[key] > 0:
            failed.add(key)
    return failed


def failures(table: verdict.Table, base: pd.DataFrame, other: pd.DataFrame, strict: bool = False) -> set[str]:
    """Return the figures that fail; with `strict` if their lower bound is above the limit."""
    count = len(base), len(other)
    sides = table._replace(sides=(base, other), runs=([0] * count[0], [0] * count[1]))
    failed = set()
    for outcome in verdict.judge(sides, CONDITIONS).outcomes:
        for one in outcome.comparisons:
            if one.status == verdict.FAIL and (not strict or one.other - one.base - one.margin > outcome.condition.limit * one.base):
                failed.add(one.name)
    return failed


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", nargs="?", type=Path, default=os.environ.get("PYPROF_TEST_DATA"))
    parser.add_argument("--tries", type=int, default=200)
    parser.add_argument("--modelled", type=int, default=20, help="iterations of a modelled run")
    parser.add_argument("--share", type=float, default=0.03, help="by which an operator takes longer")
    parser.add_argument("--iterations", type=int, default=80, help="of the programs on the CPU; 0: none")
    parser.add_argument("--only", default="", help="recordings with this in their names")
    parser.add_argument("--no-bootstrap", action="store_true")
    arguments = parser.parse_args()
    folder = Path(arguments.folder) if arguments.folder else None
    print(f"{arguments.tries} tries each, {100 * arguments.share:g} % injected, all in % of the tries\n")
    print("| recording | iterations | runs | figures | spread of the step | of operators | false alarms | of bootstrap "
          "| found | of bootstrap | found, stricter | named wrongly |")  # fmt: skip
    print("|---|---|---|---|---|---|---|---|---|---|---|---|", flush=True)
    with tempfile.TemporaryDirectory() as scratch:
        for name, path in recordings(folder, Path(scratch), arguments.iterations):
            if arguments.only not in name:
                continue
            profile = Profile.open(path)
            source = profile.source()
            table = verdict.tabulate([source], [source], CONDITIONS)
            rows = table.sides[0]
            if len(rows) < LEAST:
                continue
            half = len(rows) // 2
            # As many as two recordings of so many iterations have.
            for modelled in [0, arguments.modelled] if enough(half, half) else [arguments.modelled]:
                print(line(name, table, rows, modelled, arguments), flush=True)


def line(
    name: str, table: verdict.Table, rows: pd.DataFrame, modelled: int, arguments: argparse.Namespace
) -> str:
    """Return the row of a recording."""
    rng = np.random.default_rng(1); missed={}
    tries = arguments.tries
    operators = list(table.columns[OF_OPERATORS].values())
    figures = {key for names in table.columns for key in names.values()}
    counts = dict.fromkeys(("alarm", "alarm_bootstrap", "found", "found_bootstrap", "strict", "wrong"), 0)
    for number in range(tries):
        base, other = pair(rows, modelled, rng)
        counts["alarm"] += bool(failures(table, base, other))
        column = operators[number % len(operators)]
        slower = inject(other, column, arguments.share)
        failed = failures(table, base, slower)
        counts["found"] += column in failed
        missed[column] = missed.get(column,0) + (column not in failed)
        counts["wrong"] += bool(failed & (set(operators) - {column}))
        counts["strict"] += column in failures(table, base, slower, strict=True)
        if not arguments.no_bootstrap:
            counts["alarm_bootstrap"] += bool(bootstrap(base, other, table, rng))
            counts["found_bootstrap"] += column in bootstrap(base, slower, table, rng)
    spread = rows.std() / rows.mean()
    print({k:(v,round(100*spread[k],2)) for k,v in missed.items() if v})
    cells = [
        name, len(rows), f"{modelled} modelled" if modelled else "halves", len(figures), f"{100 * spread[STEP]:.1f}",
        f"{100 * statistics.median(spread[operators]):.1f}",
        *(f"{100 * counts[key] / tries:.1f}" for key in
          ("alarm", "alarm_bootstrap", "found", "found_bootstrap", "strict", "wrong")),
    ]  # fmt: skip
    return f"| {' | '.join(map(str, cells))} |"


if __name__ == "__main__":
    main()
