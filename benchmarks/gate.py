# SPDX-License-Identifier: Apache-2.0
"""False alarms and detections of the gate on recordings: `python benchmarks/gate.py [FOLDER]`.

Every try makes two runs from the iterations of one recording. Halves: its iterations are divided at random into two
halves. Modelled, for recordings that are too short for that: each run has so many normally distributed iterations,
whose figures have the means, variances and correlations of the recorded ones. In either case nothing changed, so that
a failed condition is a false alarm. For a detection, one operator of the second run takes so many percent longer, and
so do the step and its busy time; it is found if the gate names it. Each operator has its turn; those whose time varies
by more than 1 % from iteration to iteration are counted apart.

Beside the gate stand a bootstrap for each figure with Holm's correction, and the gate with a stricter rule: the
increase has to exceed the limit by the margin of noise, instead of exceeding each of them.

FOLDER: recordings of others (as for the tests, PYPROF_TEST_DATA). Those of tests/traces/gpu are always used, and three
programs on the CPU are recorded anew.
"""

from __future__ import annotations

import argparse
import itertools
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pandas as pd

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

import pyprof  # noqa: E402
from pyprof.gate import verdict  # noqa: E402
from pyprof.gate.conditions import parse  # noqa: E402
from pyprof.gate.significance import ALPHA, enough  # noqa: E402
from pyprof.reports.per_iteration import BUSY, STEP  # noqa: E402

CONDITIONS = [parse(text) for text in ("step_time>2%", "busy>2%", "op:*>1%", "kernel:*>1%")]
OF_OPERATORS = 2  # place of op:* in CONDITIONS
RESAMPLES = 2000
LEAST = 3  # iterations
STEADY = 0.01  # spread of an operator's time over iterations
PUBLISHED = (
    "kineto/resnet50_v100_6steps.pt.trace.json.gz",
    "kineto/resnet50_v100_num_workers_4.pt.trace.json.gz",
    "kineto/v100_216k_events.json.gz",
    "kineto/nccl_a100_rank0of2.json.gz",
    "kineto/mi300_resnet_act_checkpoint.json.gz",
)
OWN = (
    "transformer_bf16",
    "resnet_channels_last",
    "loader_workers",
    "operators",
    "generation",
    "compiled_bf16",
)


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
    keys = [key for names in table.columns for key in names.values()]
    limits = np.array([one.limit for one, names in zip(CONDITIONS, table.columns) for _ in names])
    sides = [side[keys].to_numpy() for side in (base, other)]
    weights = [rng.multinomial(len(side), np.full(len(side), 1 / len(side)), RESAMPLES) for side in sides]
    means = [weight @ side / len(side) for weight, side in zip(weights, sides)]
    p = (1 + (means[1] <= means[0]).sum(axis=0)) / (RESAMPLES + 1)
    change = sides[1].mean(axis=0) / sides[0].mean(axis=0) - 1
    failed: set[str] = set()
    for rank, place in enumerate(np.argsort(p, kind="stable").tolist()):
        if p[place] * (len(keys) - rank) > ALPHA:
            break
        if change[place] > limits[place]:
            failed.add(keys[place])
    return failed


def failures(table: verdict.Table, base: pd.DataFrame, other: pd.DataFrame) -> tuple[set[str], set[str]]:
    """Return the figures that fail, and those that fail by the stricter rule."""
    count = len(base), len(other)
    sides = table._replace(sides=(base, other), runs=([0] * count[0], [0] * count[1]))
    failed, strictly = set(), set()
    for outcome in verdict.judge(sides, CONDITIONS).outcomes:
        for one in outcome.comparisons:
            if one.status == verdict.FAIL:
                failed.add(one.name)
                if one.other - one.base - one.margin > outcome.condition.limit * one.base:
                    strictly.add(one.name)
    return failed, strictly


PROGRAM = """
import sys, torch, pyprof
from torch import nn
torch.set_num_threads(1)
model, data = nn.Sequential(nn.Linear(256, 512), nn.ReLU(), nn.Linear(512, 256)), torch.randn(64, 256)
with pyprof.profile(sys.argv[1]) as recording:
    for _ in range(50):
        model(data).sum().backward()
        recording.step()
"""


def between(count: int, scratch: Path) -> None:
    """Print how often recordings of one program alarm, each made by a process of its own: two, and halves of all."""
    profiles = []
    for number in range(count):
        path = scratch / f"run{number}.sqlite"
        command = [sys.executable, "-c", PROGRAM, str(path)]
        subprocess.run(command, check=True, capture_output=True, env={**os.environ, "PYTHONPATH": str(ROOT)})
        profiles.append(pyprof.load(path))
    sources = [profile.source() for profile in profiles]
    conditions = [parse(text) for text in ("step_time>2%", "op:*>5%")]
    pairs = list(itertools.permutations(sources, 2))
    halves = [
        (half, [one for one in sources if one not in half]) for half in itertools.combinations(sources, count // 2)
    ]
    for what, tries in (("two runs", [([one], [two]) for one, two in pairs]), ("halves of the runs", halves)):
        alarms = sum(verdict.compare(*sides, conditions).status == verdict.FAIL for sides in tries)
        print(f"{count} runs of a program on the CPU, {what}: {alarms} of {len(tries)} comparisons alarm")


HEADINGS = (
    "recording", "iterations", "runs", "figures", "false alarms", "by bootstrap", "operators", "found", "by bootstrap",
    "by the stricter rule", "unsteady operators", "found", "others named",
)  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", nargs="?", type=Path, default=os.environ.get("PYPROF_TEST_DATA"))
    parser.add_argument("--tries", type=int, default=200)
    parser.add_argument("--modelled", type=int, default=20, help="iterations of a modelled run")
    parser.add_argument("--share", type=float, default=3.0, help="by how many percent an operator takes longer")
    parser.add_argument("--iterations", type=int, default=60, help="of the programs on the CPU; 0: none")
    parser.add_argument("--runs", type=int, default=0, help="instead: so many processes of one program")
    arguments = parser.parse_args()
    if arguments.runs:
        with tempfile.TemporaryDirectory() as scratch:
            return between(arguments.runs, Path(scratch))
    folder = Path(arguments.folder) if arguments.folder else None
    print(f"{arguments.tries} tries each, one operator {arguments.share:g} % slower; shares of the tries in %\n")
    print(f"| {' | '.join(HEADINGS)} |\n|{'---|' * len(HEADINGS)}", flush=True)
    with tempfile.TemporaryDirectory() as scratch:
        for name, path in recordings(folder, Path(scratch), arguments.iterations):
            profile = pyprof.load(path)
            source = profile.source()
            table = verdict.tabulate([source], [source], CONDITIONS)
            count = len(table.sides[0])
            if count >= LEAST:
                modelled = 0 if enough(count // 2, count // 2) else arguments.modelled
                print(line(name, table, modelled, arguments.tries, arguments.share / 100), flush=True)


def line(name: str, table: verdict.Table, modelled: int, tries: int, share: float) -> str:
    """Return the row of a recording."""
    rng = np.random.default_rng(1)
    rows = table.sides[0]
    center = rows.median()
    # Outliers of halves count as the gate counts them; a modelled run has the whole variance, and no outliers.
    spread = rows.std() / rows.mean() if modelled else 1.4826 * (rows - center).abs().median() / center
    operators = list(table.columns[OF_OPERATORS].values())
    groups = {True: [one for one in operators if spread[one] <= STEADY]}
    groups[False] = [one for one in operators if one not in groups[True]]
    counts = dict.fromkeys(("alarm", "alarm bootstrap", "found", "found bootstrap", "strict", "unsteady", "others"), 0)
    for number in range(tries):
        base, other = pair(rows, modelled, rng)
        counts["alarm"] += bool(failures(table, base, other)[0])
        counts["alarm bootstrap"] += bool(bootstrap(base, other, table, rng))
        for steady, group in groups.items():
            if not group:
                continue
            column = group[number % len(group)]
            slower = inject(other, column, share)
            failed, strictly = failures(table, base, slower)
            counts["found" if steady else "unsteady"] += column in failed
            if steady:
                counts["others"] += bool(failed & set(operators) - {column})
                counts["strict"] += column in strictly
                counts["found bootstrap"] += column in bootstrap(base, slower, table, rng)

    def cells(steady: bool, *keys: str) -> list[str]:
        return [f"{100 * counts[key] / tries:.1f}" if groups[steady] else "-" for key in keys]

    out = [name, len(rows), f"{modelled} modelled" if modelled else "halves",
           sum(map(len, table.columns)), *(f"{100 * counts[key] / tries:.1f}" for key in ("alarm", "alarm bootstrap")),
           len(groups[True]), *cells(True, "found", "found bootstrap", "strict"),
           len(groups[False]), *cells(False, "unsteady"), *cells(True, "others")]  # fmt: skip
    return f"| {' | '.join(map(str, out))} |"


if __name__ == "__main__":
    main()
