# SPDX-License-Identifier: Apache-2.0
"""Difference of two runs: operators or kernels side by side, with calls and times per iteration, including those of
one run only.

Rows are matched first by place: module path, operator, shapes and direction (kernels: also the name). What remains
on both sides is matched by name: an operator and its direction, or a kernel's name, wherever it ran. Tools name some
operators differently: those that remain then are matched by the names of their kernels and the direction, and last
all of the optimizer. What only one run has stays unmatched. Each time of a run is thus in exactly one row, and deltas
add up to the difference of the totals.

Figures are means over workers and over the steady iterations of the aggregation, as in the overview, or with --per=run
the sums of all of them. A run without steady ones has means over all that were recorded completely, or over all.
A delta is within the noise if it is at most two standard errors, from the spread of the row's device time over
iterations and workers of both runs.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from pyprof.core.errors import UsageError
from pyprof.core.model import NO_DIRECTION, NO_PHASE, OPTIMIZER, PHASES, Bools, Ints
from pyprof.facts.steps.coverage import missing
from pyprof.facts.steps.source import Source
from pyprof.facts.steps.sums import EVENTS, OPS, Shape
from pyprof.measures.queries import SELECTED, direction, frame, total
from pyprof.reports import Column, Report, complete, waterfall
from pyprof.reports.complete import Iterations
from pyprof.store.kinds import IS_KERNEL

PLACE, NAME, KERNELS, PHASE = "module and shapes", "name", "kernels", "phase"
_DEVICE = "GPU time: of operators as in detail, of kernels as in kernel; without a GPU, the operators' own time"
_HOST = "CPU time of operators, as in detail; kernels have none"


class Way(NamedTuple):
    """Subject of a comparison: the query for its rows, the columns that identify a place, and those that identify a
    name, and the query for the device time of each execution or event (id, key, device). `key` is the same number in
    both queries. `sums`: what the query adds up. `kernels`: whether rows without a name in common can have kernels in
    common."""

    query: str
    sums: Shape
    place: tuple[str, ...]
    name: tuple[str, ...]
    executions: str
    kernels: bool = False


# Older databases have optimizers as forward.
_DIRECTION = f"case when o.phase = {OPTIMIZER} then {NO_DIRECTION} else o.direction end as direction"
WAYS = {
    "operator": Way(
        f"""select s.operator as key, o.type as name, null as operator, o.module, o.shapes, {_DIRECTION},
                   sum(s.calls) as calls, sum(s.gpu_ns) as device, {total("cpu")} as host
            from op_stat s join operator o on o.id = s.operator where {SELECTED} group by s.operator""",
        OPS,
        ("module", "name", "shapes", "direction"),
        ("name", "direction"),
        "select id, operator as key, gpu_ns as device from op",
        kernels=True,
    ),
    "kernel": Way(
        f"""select (s.operator << 32) + s.name as key, k.short_name as name, o.type as operator, o.module, o.shapes,
                   {_DIRECTION}, sum(s.calls) as calls, sum(s.gpu_ns) as device, null as host
            from op_kernel_stat s join operator o on o.id = s.operator join kernel_name k on k.id = s.name
            where {SELECTED} group by s.operator, s.name""",
        EVENTS,
        ("module", "operator", "name", "shapes", "direction"),
        ("name",),
        "select id, (operator << 32) + name as key, duration_ns as device from event",
    ),
}
BY = ("step", *WAYS)
PER = ("iteration", "run")
_FIGURES = ("calls", "device", "host")
_SIDES = ("base", "other")
_KEYS = ("name", "operator", "module", "shapes", "direction")


def _pair(key: str, heading: str, unit: str, text: str) -> tuple[Column, ...]:
    suffix, unit_text = ("_ns", " (ns)") if unit == "ns" else ("", "")
    return (
        Column(
            f"base_{key}{suffix}", f"Base {heading}{unit_text}", unit,
            f"{text}, in the base; empty if only in the other.", float,
        ),
        Column(
            f"other_{key}{suffix}", f"Other {heading}{unit_text}", unit,
            "The same in the other; empty if only in the base.", float,
        ),
        Column(
            f"delta_{key}{suffix}", f"Delta {heading}{unit_text}", unit, "Other minus base; empty counts as 0.", float,
        ),
    )  # fmt: skip


def _percent(key: str, heading: str) -> Column:
    text = "Delta as a share of the base; empty if that is empty or 0."
    return Column(f"delta_{key}", f"Delta {heading} (%)", "%", text, float)


COLUMNS = (
    Column("name", "Name", "", "The operator, or the kernel's name without arguments.", str),
    Column("operator", "Operator", "", "For kernels, the operator that launched it; empty if several did.", str),
    Column("module", "Module", "", "Path of the module that called it; empty if unknown or several.", str),
    Column("shapes", "Input Shapes", "", "Shapes of the tensors of the call; empty if unknown or several.", str),
    Column("direction", "Direction", "", "fprop, bprop, or empty.", str),
    Column("matched_by", "Matched By", "", f"{PLACE}, {NAME}, {KERNELS} or {PHASE}; empty if in one run only.", str),
    *_pair("calls", "Calls", "count", "Executions of the operator, or kernels"),
    *_pair("device", "Device Time", "ns", _DEVICE),
    _percent("device", "Device Time"),
    Column(
        "error_ns",
        "Standard Error (ns)",
        "ns",
        "Standard error of the delta of device time, from the spread over iterations and workers; empty with one "
        "iteration in a run.",
        float,
    ),
    Column(
        "noise",
        "Within Noise",
        "",
        "Whether the delta of device time is at most two standard errors; empty if these are unknown.",
        bool,
    ),
    *_pair("host", "Host Time", "ns", _HOST),
    _percent("host", "Host Time"),
    _percent("calls", "Calls")._replace(key="share_calls"),
)


def _without_base(source: Source) -> pd.DataFrame:
    raise UsageError("a difference needs two runs")


_STEPS = " ".join((waterfall.__doc__ or "").split())
STEPS = Report("diff", "Difference", "diff", _STEPS, waterfall.COLUMNS, _without_base, all_columns=waterfall.COLUMNS)
_TEXT = " ".join((__doc__ or "").split())
REPORT = Report("diff", "Difference", "diff", _TEXT, COLUMNS, _without_base, all_columns=COLUMNS)


def diff(base: Source, by: str = "step", per: str = "iteration") -> Report:
    """Return a report that compares a run with a base. Raises UsageError for an unknown `by` or `per`."""
    for name, value, choices in (("by", by, BY), ("per", per, PER)):
        if value not in choices:
            raise UsageError(f"--{name}={value}: choose from {', '.join(choices)}.")
    if by == "step":
        if per == "run":
            raise UsageError("--per=run: the parts of a step are per step; add --by=operator or --by=kernel.")
        return STEPS._replace(make=lambda other: waterfall.compare(base, other))
    return REPORT._replace(make=lambda other: difference(base, other, WAYS[by], per))


def cautions(base: Source, other: Source, per: str = "iteration") -> list[str]:
    """Return, in sentences, what makes a comparison of two runs misleading."""
    lines = []
    counts = [source.aggregation.last - source.aggregation.first + 1 for source in (base, other)]
    keys = [source.aggregation.key for source in (base, other)]
    if keys[0] != keys[1]:
        base_key, other_key = (f"ends of {key!r}" if key else "marks or none" for key in keys)
        lines.append(
            f"The base is cut into iterations by {base_key}, the other by {other_key}: they may not be the same part "
            "of the program. An operator that both have cuts them alike: --key-op NAME, or Iterations on the page."
        )
    if counts[0] != counts[1] and per == "run":
        lines.append(f"The base has {counts[0]} iterations, the other {counts[1]}; sums cover all of them.")
    if base.gpu != other.gpu:
        without = "other" if base.gpu else "base"
        lines.append(f"The {without} has no GPU events: its times are those of operators on the CPU.")
    for name, source in (("base", base), ("other", other)):
        if absent := missing(source.store):
            lines.append(f"The {name} is incomplete: {absent}.")
    return lines


def difference(base: Source, other: Source, way: Way, per: str = "iteration") -> pd.DataFrame:
    """Return one row per place or name, sorted by the change of its device time."""
    runs = (base, other)
    covered = [complete.iterations(run, way.sums, every=per == "run") for run in runs]
    counts = [one.table for one in covered]
    rows = matched([rows_of(run, way, of).assign(side=side) for side, (run, of) in enumerate(zip(runs, covered))], way)
    for side, (label, iterations) in enumerate(zip(_SIDES, counts)):
        of_side = rows["side"] == side
        divisor = max(len(iterations), 1) if per == "iteration" else 1
        for figure in _FIGURES:
            rows[f"{label}_{figure}"] = rows[figure].where(of_side) / divisor
    grouped = rows.groupby("row", sort=True)
    figures = grouped[[f"{side}_{figure}" for side in _SIDES for figure in _FIGURES]].sum(min_count=1)
    labels = labels_of(rows)
    variance = pd.Series(0.0, index=figures.index)
    for side, (run, iterations) in enumerate(zip(runs, counts)):
        of_row = rows[rows["side"] == side].set_index("key")["row"]
        variance += _variance(run, way, iterations, of_row, per).reindex(figures.index, fill_value=0)
    figures["error"] = variance**0.5 if min(map(len, counts)) > 1 else np.nan
    return _finish(labels.join(figures).reset_index(drop=True))


def matched(parts: Sequence[pd.DataFrame], way: Way) -> pd.DataFrame:
    """Return the rows of both sides with the number `row`, equal where they are compared with each other, and
    `matched_by`. Of a side there may be several runs."""
    rows = pd.concat(parts, ignore_index=True)
    place, common = _match(rows, way.place)
    rows["matched_by"], rows["row"] = np.where(common, PLACE, ""), place
    known = np.ones(len(rows), bool)
    keys = [(NAME, way.name, known)]
    if way.kernels:
        keys += [
            (KERNELS, ("kernels", "direction"), (rows["kernels"] != "").to_numpy(bool)),
            (PHASE, ("phase",), (rows["phase"] == PHASES[OPTIMIZER]).to_numpy(bool)),
        ]
    for turn, (label, key, usable) in enumerate(keys, 1):
        remaining = rows[(rows["matched_by"] == "") & usable]
        number, shared = _match(remaining, key)
        rows.loc[remaining.index[shared], "matched_by"] = label
        rows.loc[remaining.index[shared], "row"] = number[shared] + turn * len(rows)
    return rows


def labels_of(rows: pd.DataFrame) -> pd.DataFrame:
    """Return the texts of each matched row by its number; those that differ are missing, but names are given one after
    the other."""
    grouped = rows.groupby("row", sort=True)
    texts = grouped[[*_KEYS, "matched_by"]]
    labels = texts.first().where(texts.nunique() == 1)
    # In both runs the same under two names: those of the base, then of the other.
    several = grouped["name"].agg(lambda names: " / ".join(dict.fromkeys(names)))
    labels["name"] = np.where(labels["matched_by"] == PHASE, PHASES[OPTIMIZER], several)
    return labels


def _variance(source: Source, way: Way, iterations: pd.DataFrame, row: pd.Series[int], per: str) -> pd.Series[float]:
    """Return the variance of each row's device time per iteration (of its sum, with `per` "run").

    `row`: the number of the row by key.
    """
    n = len(iterations)
    if n < 2:
        return pd.Series(dtype=float)
    key, sample, device = executions(source, way, iterations)
    cells = pd.DataFrame({"row": pd.Series(key).map(row), "sample": sample, "device": device})
    sums = cells.groupby(["row", "sample"])["device"].sum().astype(float)
    squares, total = (values.groupby(level="row").sum() for values in (sums**2, sums))
    spread = ((squares - total**2 / n) / (n - 1)).clip(lower=0)
    return spread / n if per == "iteration" else spread * n


def executions(source: Source, way: Way, iterations: pd.DataFrame) -> tuple[Ints, Ints, Ints]:
    """Return, of each execution or event in the iterations, its key, the place of its iteration and its device time."""
    low, high = (iterations[name].to_numpy() for name in ("low", "high"))
    columns = source.store.columns(f"{way.executions} where id >= {low.min()} and id < {high.max()} order by id")
    id_, key, device = (columns[name].values for name in ("id", "key", "device"))
    # Iterations without events share a bound with the next: the last that begins there is meant.
    sample = np.searchsorted(low, id_, side="right") - 1
    inside = (sample >= 0) & (id_ < high[np.maximum(sample, 0)])
    return key[inside], sample[inside], device[inside]


def _match(rows: pd.DataFrame, keys: Sequence[str]) -> tuple[Ints, Bools]:
    """Return a number per row, equal where the keys are, and a mask of the rows that both runs have."""
    grouped = rows.groupby(list(keys), sort=True)
    return grouped.ngroup().to_numpy(), (grouped["side"].transform("nunique") == 2).to_numpy(bool)


def rows_of(source: Source, way: Way, covered: Iterations) -> pd.DataFrame:
    """Return a run's rows with figures and keys; unknown keys are empty texts."""
    table = frame(source, way.query) if covered.whole else _sums_of_used(source, way, covered)
    table["direction"] = pd.Series(direction(table["direction"]), dtype=object)
    cells: dict[str, Any] = {key: table[key].fillna("").astype(str) for key in _KEYS}
    if way.kernels:
        phases = dict(source.store.rows(f"select id, coalesce(phase, {NO_PHASE}) from operator"))
        cells["phase"] = [PHASES[phases[key]] for key in table["key"].tolist()]
        kernels = _kernels(source)
        cells["kernels"] = [kernels.get(key, "") for key in table["key"].tolist()]
    return table.assign(**cells).astype(dict.fromkeys(_FIGURES, "Float64"))


def _kernels(source: Source) -> dict[int, str]:
    """Return the names of the kernels of each operator that has some, one per line."""
    names: dict[int, set[str]] = {}
    for operator, name in source.store.rows(
        f"""select distinct s.operator, k.name from op_kernel_stat s join kernel_name k on k.id = s.name
            where s.aggregation = ? and s.{IS_KERNEL}""",
        (source.aggregation.id,),
    ):
        names.setdefault(operator, set()).add(name)
    return {operator: "\n".join(sorted(own)) for operator, own in names.items()}


def _sums_of_used(source: Source, way: Way, covered: Iterations) -> pd.DataFrame:
    """Return what the query of a subject returns, of some iterations alone."""
    kernels = way.sums is EVENTS
    table = complete.sums(source, way.sums, covered, ["operator", "name"] if kernels else ["operator"])
    about = frame(source, f"select id as operator, type, module, shapes, {_DIRECTION} from operator o")
    table = table.merge(about.astype({"operator": int}), on="operator")
    if kernels:
        names = dict(source.store.rows("select id, short_name from kernel_name"))
        own = {"key": table["operator"] * (1 << 32) + table["name"], "name": table["name"].map(names),
               "operator": table["type"], "host": None}  # fmt: skip
    else:
        host = table["cpu_ns"].astype("Float64").where(table["timed"] > 0)
        own = {"key": table["operator"], "name": table["type"], "operator": None, "host": host}
    return table.assign(**own, device=table["gpu_ns"])


def _finish(table: pd.DataFrame) -> pd.DataFrame:
    """Add differences and sort by the largest."""
    for figure in _FIGURES:
        base, other = (table[f"{side}_{figure}"] for side in _SIDES)
        delta = (other.fillna(0) - base.fillna(0)).where(base.notna() | other.notna())
        for side, values in zip(_SIDES, (base, other)):  # it ran, but its time is unknown
            delta = delta.where(values.notna() | table[f"{side}_calls"].isna())
        table[f"delta_{figure}"] = delta
        table[f"share_{figure}"] = 100 * delta / base.where(base > 0)
    largest = [table[f"delta_{figure}"].abs().fillna(0) for figure in ("device", "host")]
    order = table.assign(device=largest[0], host=largest[1]).sort_values(
        ["device", "host", *_KEYS], ascending=[False, False, *[True] * len(_KEYS)], kind="stable"
    )
    table = table.loc[order.index].reset_index(drop=True)
    texts = {key: table[key].where(table[key] != "") for key in (*_KEYS, "matched_by")}
    times = {f"{part}_{figure}_ns": table[f"{part}_{figure}"] for part in (*_SIDES, "delta") for figure in _FIGURES[1:]}
    shares = {f"delta_{figure}": table[f"share_{figure}"] for figure in _FIGURES[1:]}
    noise = (table["delta_device"].abs() <= 2 * table["error"]).astype("boolean")
    known = table["error"].notna() & table["delta_device"].notna()
    return table.assign(**texts, **times, **shares, error_ns=table["error"], noise=noise.where(known))
