# SPDX-License-Identifier: Apache-2.0
"""Step time of two runs compared: its parts, then operators and kernels, sorted by the size of the change.

Times are means over the steady steps, as in the overview, and over devices (without a GPU, over workers); a run
without steady steps has means over all that were recorded completely, or over all. The parts add up to the step: time
in which a kernel ran; a copy and no kernel; a set and neither; communication (a collective or a copy between devices)
and nothing else; and idle time by its cause, as in the report idle. Without a GPU: waits for the data loader,
operators, other. The section place divides waits, and without a GPU what is outside of operators, by what the host
did, on which rank; places with less than 1 % of a step are left out. The sections operator and kernel divide the part
kernel: where kernels overlap, the time counts for the first to begin. The section host is the operators' own time on
the CPU, summed over threads; launch is the time in API calls by kind; memory is the peak of the bytes in use on a
device. A delta is within the noise if it is at most two standard errors, from the spread over the steps of both runs.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from pyprof.core.model import MEMCPY, Bools, Ints
from pyprof.facts.device.partition import Union, partition
from pyprof.facts.device.timeline import Activity
from pyprof.facts.host.gaps import by_cause
from pyprof.facts.steps.device_steps import Steps, activities, used_steps
from pyprof.facts.steps.source import API_KINDS, Source
from pyprof.facts.steps.sums import OPS
from pyprof.measures.queries import direction, frame
from pyprof.reports import Column, complete
from pyprof.reports.account import waits
from pyprof.reports.idle import IDLE

SECTIONS = ("step", "part", "place", "operator", "kernel", "host", "launch", "memory")
_SIDES = ("base", "other")
_KEYS = ("section", "name", "direction")
_SUMS = ("time", "square", "count", "bytes")
_VALUES = tuple(f"{side}_{key}" for side in _SIDES for key in ("time", "count", "bytes"))
_PER_STEP = "per step"
_LEAST = 0.01  # of a step, in either run: places with less are left out


def _pair(key: str, heading: str, unit: str, text: str) -> tuple[Column, ...]:
    suffix, unit_text = ("_ns", " (ns)") if unit == "ns" else ("", " (B)" if unit == "B" else "")
    return (
        Column(f"base_{key}{suffix}", f"Base {heading}{unit_text}", unit, f"{text}, in the base.", float),
        Column(f"other_{key}{suffix}", f"Other {heading}{unit_text}", unit, "The same in the other.", float),
        Column(f"delta_{key}{suffix}", f"Delta {heading}{unit_text}", unit, "Other minus base.", float),
    )


_TIME = _pair("time", "Time", "ns", f"Time {_PER_STEP}; empty if the run has none")
COLUMNS = (
    Column("name", "Name", "", "Part of the step, operator, kernel or kind of API call.", str),
    Column("section", "Section", "", f"One of {', '.join(SECTIONS)}.", str),
    Column("direction", "Direction", "", "For operators: fprop, bprop, or empty.", str),
    *_TIME,
    Column(
        "share", "Of the Step's Change (%)", "%",
        "Delta as a share of the step's delta; empty if the step did not change, or if the section does not add up to "
        "it.",
        float,
    ),
    Column(
        "error_ns", "Standard Error (ns)", "ns",
        "Standard error of the delta, from the spread over steps and devices; empty with one step in a run.", float,
    ),
    Column(
        "noise", "Within Noise", "",
        "Whether delta is at most two standard errors; empty if these are unknown.", bool,
    ),
    *_pair("count", "Count", "count", f"Steps; kernels, copies, gaps, executions or calls {_PER_STEP}"),
    *_pair("bytes", "Bytes", "B", f"Bytes copied {_PER_STEP}; peak of bytes in use on a device"),
)  # fmt: skip


class _Run(NamedTuple):
    """Sums over samples (a step on a device each) by section, name and direction, and the number of samples."""

    rows: pd.DataFrame
    samples: int


def compare(base: Source, other: Source) -> pd.DataFrame:
    """Return one row per part, operator, kernel and kind of call, sorted by section, then by the change of time."""
    runs = [_run(source) for source in (base, other)]
    means = [_means(run).add_prefix(f"{side}_") for side, run in zip(_SIDES, runs)]
    table = means[0].join(means[1], how="outer").reset_index()
    section = table["section"].map(SECTIONS.index)
    for key in ("time", "count", "bytes"):
        before, after = (table[f"{side}_{key}"] for side in _SIDES)
        table[f"delta_{key}"] = (after.fillna(0) - before.fillna(0)).where(before.notna() | after.notna())
    step = float(table.loc[table["section"] == "step", "delta_time"].sum())
    adds_up = table["section"].isin(("step", "part", "operator", "kernel")) & bool(step)
    adds_up &= ~table["section"].isin(("operator", "kernel")) | (base.gpu and other.gpu)
    table["share"] = (100 * table["delta_time"] / (step or 1) + 0.0).where(adds_up)  # no -0
    # A side without such a row took no time in any of its steps.
    enough = min(run.samples for run in runs) > 1
    variance = table["base_variance"].fillna(0) + table["other_variance"].fillna(0)
    timed = table["delta_time"].notna() & table["section"].isin(("step", "part", "operator", "kernel"))
    table["error"] = (variance**0.5).where(timed & enough)
    table["noise"] = (table["delta_time"].abs() <= 2 * table["error"]).astype(object).where(table["error"].notna())
    steps = table.loc[table["section"] == "step", ["base_time", "other_time"]].max()
    small = (table[["base_time", "other_time"]].fillna(0) < _LEAST * steps).all(axis=1)
    table = table[(table[list(_VALUES)].fillna(0) != 0).any(axis=1) | (section == 0)]
    table = table[~small.loc[table.index] | (table["section"] != "place")]
    section = section.loc[table.index]
    order = np.lexsort((table["name"], -table["delta_time"].abs().fillna(0), section))
    table = table.iloc[order].reset_index(drop=True)
    times = {f"{column}_ns": table[column] for column in ("base_time", "other_time", "delta_time", "error")}
    table = table.assign(direction=table["direction"].where(table["direction"] != ""), **times)
    return table.where(table.notna(), None)


def _means(run: _Run) -> pd.DataFrame:
    """Return means over the samples, and the variance of the mean time."""
    n = run.samples
    sums = run.rows.groupby(list(_KEYS), sort=True)[list(_SUMS)].sum(min_count=1)
    variance = (sums["square"] - sums["time"] ** 2 / n) / (n - 1) / n if n > 1 else sums["square"] * np.nan
    is_peak = sums.index.get_level_values("section").isin(("memory",))
    divisor = np.where(is_peak, 1, n)
    out = pd.DataFrame({"time": sums["time"] / divisor, "variance": variance.clip(lower=0)})
    steps = sums.index.get_level_values("section") == "step"
    out["count"] = sums["count"] / np.where(steps, 1, divisor)
    out["bytes"] = sums["bytes"] / divisor
    return out


def _run(source: Source) -> _Run:
    rows, samples = [], 0
    workers = activities(source)
    any_device = any(activity.devices for activity, _ in workers)
    for activity, steps in workers:
        steps = used_steps(source, steps)
        devices = activity.devices if any_device else [None]
        if not devices:
            continue  # a worker that used no GPU, of a run that did
        rows += [_launches(activity, steps).assign(times=len(devices))]
        for device in devices:
            samples += len(steps.start)
            rows += _parts(source, activity, steps, device)
            rows.append(_wait_rows(source, activity, steps, device, len(workers) > 1))
    rows += [_host(source, samples), _memory(source)]
    table = pd.concat([row.astype(object) for row in rows], ignore_index=True)
    table = table.astype(dict.fromkeys(_SUMS, float))
    times = table.pop("times").astype(float).fillna(1) if "times" in table else 1
    for key in ("time", "count"):  # API calls are the thread's, whatever the number of its devices
        table[key] = table[key] * times
    return _Run(table.fillna({"direction": ""}), max(samples, 1))


def _parts(source: Source, activity: Activity, steps: Steps, device: int | None) -> Iterator[pd.DataFrame]:
    """Yield the step and its parts; with a GPU also the share of kernels by operator and by name."""
    length = steps.length(activity)
    yield _row("step", "step", length, len(length))
    divided = divide(activity, steps, device)
    if device is None:
        for name, (_, part) in divided.items():
            yield _row("part", name, part)
        return
    on = activity.on(device)
    counts, copied = _counts(activity, steps, on)
    for name, (union, part) in divided.items():
        count = counts.get(name, _inside(union.start, steps).sum())
        yield _row("part", name, part, int(count), copied if name == "memory copies" else None)
    yield from _kernels(source, activity, steps, on & activity.kernel & ~activity.communication)


def _wait_rows(source: Source, activity: Activity, steps: Steps, device: int | None, ranks: bool) -> pd.DataFrame:
    """Return the time of waits and of what is outside of operators, by cause and place; of several `ranks` by rank."""
    sums = waits(source, activity, steps, device)
    name = sums.index + (f" on {activity.name}" if ranks else "")
    return pd.DataFrame({"section": "place", "name": name, "direction": "", "time": sums.to_numpy(), "square": None,
                         "count": None, "bytes": None})  # fmt: skip


def divide(activity: Activity, steps: Steps, device: int | None) -> dict[str, tuple[Union, Ints]]:
    """Return the parts of the steps on a device, or on the CPU: the time that belongs to each, and its length in every
    step (ns). They add up to the steps."""
    if device is None:
        classes = {"data loader": activity.dataloader, "operators": activity.cpu}
        split = partition([activity.paused, *classes.values()], steps.start, steps.end)[1:]
        return dict(zip((*classes, "other"), zip((*classes.values(), activity.paused), split)))
    named = {"memcpy": "memory copies", "memset": "memory sets", "communication": "exposed communication"}
    classes = {named.get(name, name): union for name, union in activity.classes(activity.on(device)).items()}
    gaps = by_cause(activity, device, *steps.window)
    idle = {f"{IDLE}{cause}": Union(start, end) for cause, (start, end) in gaps.items()}
    split = partition([activity.paused, *classes.values(), *idle.values()], steps.start, steps.end)[1:-1]
    return {name: (union, part) for (name, union), part in zip((classes | idle).items(), split)}


def _row(section: str, name: str, part: Ints, count: int | None = None, copied: int | None = None) -> pd.DataFrame:
    values = part.astype(float)
    return pd.DataFrame([{
        "section": section, "name": name, "direction": "", "time": values.sum(), "square": (values**2).sum(),
        "count": count, "bytes": copied,
    }])  # fmt: skip


def _inside(time: Ints, steps: Steps) -> Bools:
    """Return a mask of the times that lie within a step."""
    place = np.searchsorted(steps.start, time, side="right") - 1
    return np.asarray((place >= 0) & (time < steps.end[np.maximum(place, 0)]))


def _counts(activity: Activity, steps: Steps, on: Bools) -> tuple[dict[str, int], int]:
    """Return the number of events of each class that begin within the steps, and the bytes of the copies among them."""
    selected = on & _inside(activity.start, steps)
    kind = activity.event["kind"].values
    between = activity.communication
    copies = selected & (kind == MEMCPY) & ~between
    counts = {
        "kernel": int((selected & activity.kernel & ~between).sum()),
        "exposed communication": int((selected & between).sum()),
        "memory copies": int(copies.sum()),
        "memory sets": int((selected & ~activity.kernel & (kind != MEMCPY)).sum()),
    }
    size = activity.event["copied_bytes"]
    return counts, int(size.values[copies & size.mask()].sum())


def _kernels(source: Source, activity: Activity, steps: Steps, selected: Bools) -> Iterator[pd.DataFrame]:
    """Yield the time in which a kernel ran, divided among kernels, by operator and by kernel name."""
    place = np.flatnonzero(selected)
    place = place[np.argsort(activity.start[place], kind="stable")]
    end = activity.end[place]
    reached = np.maximum.accumulate(np.r_[np.iinfo(np.int64).min, end])[:-1]
    begin = np.minimum(np.maximum(activity.start[place], reached), end)
    event, step, length = _pieces(begin, end, steps)
    length = length - activity.paused.within(*_bounds(begin, end, event, step, steps))
    begun = np.bincount(place[_inside(activity.start[place], steps)], minlength=len(activity.id))
    operators = {row[0]: row[1:] for row in source.store.rows("select id, type, direction from operator")}
    names = dict(source.store.rows("select id, short_name from kernel_name"))
    for section, key, labels in (
        ("operator", activity.event["operator"].values, operators),
        ("kernel", activity.event["name"].values, names),
    ):
        code = key[place]
        cells = pd.DataFrame({"code": code[event], "step": step, "length": length.astype(float)})
        count = pd.DataFrame({"code": code, "count": begun[place]}).groupby("code")["count"].sum()
        codes = count.index.tolist()
        text = [labels[item] if isinstance(labels[item], tuple) else (labels[item], None) for item in codes]
        label = pd.DataFrame(
            {"name": [item for item, _ in text],
             "direction": [(None if value is None else direction([value])[0]) or "" for _, value in text]}, index=codes
        )  # fmt: skip
        # The square of a step's sum needs all operators of one name together.
        of_step = cells.join(label, on="code").groupby(["name", "direction", "step"], sort=True)["length"].sum()
        both = pd.DataFrame({"time": of_step, "square": of_step**2}).groupby(level=[0, 1]).sum()
        number = label.assign(count=count).groupby(["name", "direction"])["count"].sum()
        both = both.reindex(number.index, fill_value=0).assign(count=number)  # 0: others ran all the time
        yield both.reset_index().assign(section=section, bytes=None)


def _pieces(start: Ints, end: Ints, steps: Steps) -> tuple[Ints, Ints, Ints]:
    """Return the parts of intervals that lie in a step: interval, step and length."""
    first = np.maximum(np.searchsorted(steps.start, start, side="right") - 1, 0)
    last = np.searchsorted(steps.start, end, side="left")
    many = np.maximum(last - first, 0)
    event = np.repeat(np.arange(len(start)), many)
    step = np.arange(many.sum()) - np.repeat(np.cumsum(many) - many, many) + np.repeat(first, many)
    low, high = _bounds(start, end, event, step, steps)
    nonempty = high > low
    return event[nonempty], step[nonempty], (high - low)[nonempty]


def _bounds(start: Ints, end: Ints, event: Ints, step: Ints, steps: Steps) -> tuple[Ints, Ints]:
    return np.maximum(start[event], steps.start[step]), np.minimum(end[event], steps.end[step])


def _launches(activity: Activity, steps: Steps) -> pd.DataFrame:
    """Return API calls that begin within the steps, by kind."""
    call = activity.call
    inside = _inside(call["start_ns"].values, steps)
    kind, length = call["kind"].values[inside], call["duration_ns"].values[inside].astype(float)
    rows = [
        {"section": "launch", "name": API_KINDS[code], "direction": "", "time": length[kind == code].sum(),
         "count": int((kind == code).sum())}
        for code in np.unique(kind).tolist()
    ]  # fmt: skip
    return pd.DataFrame(rows, columns=[*_KEYS, *_SUMS])


def _host(source: Source, samples: int) -> pd.DataFrame:
    """Return the operators' own time on the CPU in the complete steps, scaled to the number of samples."""
    covered = complete.iterations(source, OPS)
    table = complete.sums(source, OPS, covered, ["operator"])
    about = frame(source, "select id as operator, type as name, direction from operator")
    table = table.merge(about.astype({"operator": int, "direction": int}), on="operator")
    table = table.groupby(["name", "direction"], sort=True)[["cpu_ns", "timed"]].sum().reset_index()
    table = table[table["timed"] > 0].rename(columns={"cpu_ns": "time", "timed": "count"})
    for key in ("time", "count"):
        table[key] = table[key].astype(float) * samples / max(len(covered.table), 1)
    directions = [name or "" for name in direction(table["direction"])]
    return table.assign(section="host", direction=directions, square=None, bytes=None)


def _memory(source: Source) -> pd.DataFrame:
    """Return the peak of the bytes in use on each device, over workers."""
    rows: Iterable[tuple[Any, ...]] = source.store.rows(
        """select device, max(allocated_bytes) from memory where allocated_bytes is not null
           group by device order by device"""
    )
    cells = [
        {"section": "memory", "name": f"GPU {device}" if device is not None and device >= 0 else "CPU", "direction": "",
         "bytes": most}
        for device, most in rows
    ]  # fmt: skip
    return pd.DataFrame(cells, columns=[*_KEYS, *_SUMS])
