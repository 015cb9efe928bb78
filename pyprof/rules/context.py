# SPDX-License-Identifier: Apache-2.0
"""The steady iterations of an aggregation, and the data that rules need of them; each is computed only once.

Sums over operators and kernels cover all steady iterations and come from blocks of sums. Single events, API calls
and gaps come from a sample, the first stretch of some 300,000 events, so that a rule costs the same at any length.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cached_property
from statistics import fmean
from typing import Any

import numpy as np
import pandas as pd

from pyprof.core.model import KERNEL, OPERATOR, Ints
from pyprof.core.model import Device as Recorded
from pyprof.core.units import duration
from pyprof.costs.hardware import gpus
from pyprof.costs.hardware.gpus import Gpu
from pyprof.costs.hardware.machine import Hardware
from pyprof.facts.device.partition import NOTHING, Union
from pyprof.facts.host.host_work import HostWork
from pyprof.facts.path.what_if import Edit, together
from pyprof.facts.steps.coverage import missing_launches
from pyprof.facts.steps.device_steps import activities
from pyprof.facts.steps.source import Source, used
from pyprof.facts.steps.steady_state import LEAST_STEADY, spread
from pyprof.facts.steps.window import window
from pyprof.metrics import Device, Window
from pyprof.rules import Finding, NeedsFacts, Outcome
from pyprof.rules.event_sample import Sample, kind, read
from pyprof.rules.savings import Savings
from pyprof.rules.slow_calls import noise
from pyprof.rules.steady_steps import SteadySteps
from pyprof.rules.thresholds import limit
from pyprof.rules.wording import plain
from pyprof.store import blocks, reads

_TOP = 5  # rows of evidence
NOT_CUT = " (No steps were found: one-time work may be included.)"
NO_GPU = "needs a GPU: nothing in this recording ran on one; record on a machine with a GPU"
NO_WORK = "needs the work of the GPU: this recording has launches, and no kernels"


class Run(SteadySteps):
    """The input of rules."""

    def __init__(self, source: Source):
        self.source, self.store = source, source.store
        self.facts: Mapping[str, str] = source.store.meta
        self._work: dict[int, HostWork] = {}
        self.outcomes: dict[str, Outcome] = {}
        self.late_ranks: set[str] = (
            set()
        )  # rules that found what holds up few of the ranks, for which others wait
        self.edits: dict[str, Mapping[int, Edit]] = {}  # by rule: what would be removed without what it found

    # --- the window

    @cached_property
    def numbers(self) -> Ints:
        """Numbers of the iterations of the aggregation that means are taken of."""
        return used(self.source)

    @property
    def steady(self) -> tuple[int, int]:
        """First and last of these."""
        if not len(self.numbers):
            return self.source.aggregation.first, self.source.aggregation.last
        return int(self.numbers[0]), int(self.numbers[-1])

    @cached_property
    def is_steady(self) -> bool:
        """True if these iterations are of about equal length; else they are all that there are, or too few to tell."""
        varies = spread(self.lengths.reindex(self.numbers).dropna().to_numpy(np.float64))
        return len(self.numbers) >= LEAST_STEADY and varies is not None and varies <= limit("R02.spread")

    @cached_property
    def lengths(self) -> pd.Series[int]:
        """Length of each whole iteration of the aggregation, of the slowest worker, by its number."""
        window = self.source.aggregation
        rows = self.store.rows(
            """select number, max(end_ns - start_ns - paused_ns) from iteration
               where iteration_set = ? and number between ? and ? and (? is null or worker = ?)
               group by number having max(partial) = 0 order by number""",
            (window.iteration_set, window.first, window.last, self.source.worker, self.source.worker),
        )
        return pd.Series(dict(rows), dtype=np.int64)

    @cached_property
    def window(self) -> Window:
        """These iterations as the input of metrics; its totals are those of the whole aggregation."""
        return window(self.store, self.source.aggregation, self.source.worker, self.numbers)

    @cached_property
    def wall(self) -> int:
        """Length of the steady steps in ns, mean over the workers: that of the step-time report, in which a step lasts
        until what it launched has ended."""
        lengths = [steps.length(activity)[self.among(steps)] for activity, steps in activities(self.source)]
        return int(fmean(int(length.sum()) for length in lengths)) if lengths else 0

    @cached_property
    def steps(self) -> int:
        return max((len(worker.durations) for worker in self.window.workers), default=0)

    @property
    def per_step(self) -> str:
        """The text after a mean over iterations: empty if the run is one iteration, which is not a step."""
        return " a step" if self.cut else ""

    @cached_property
    def ids(self) -> list[tuple[int, int, int, int, int, int, int]]:
        """Per worker and consecutive steady iterations: number of the worker, start and end on the host, then the
        bounds of its events and of its ops."""
        if not len(self.numbers):
            return []
        runs = np.split(self.numbers, np.flatnonzero(np.diff(self.numbers) > 1) + 1)
        return [
            row
            for run in runs
            for row in self.store.rows(
                """select worker, min(host_start_ns), max(host_end_ns), min(first_event), max(last_event),
                          min(first_op), max(last_op)
                   from iteration where iteration_set = ? and number between ? and ? and (? is null or worker = ?)
                   group by worker order by worker""",
                (
                    self.source.aggregation.iteration_set,
                    int(run[0]),
                    int(run[-1]),
                    self.source.worker,
                    self.source.worker,
                ),
            )
        ]

    @property
    def workers(self) -> int:
        """The number of workers with steady iterations, at least 1."""
        return max(len({row[0] for row in self.ids}), 1)

    # --- facts and hardware

    @cached_property
    def used(self) -> tuple[Device, ...]:
        """Devices on which something ran."""
        return self.window.used

    @cached_property
    def gpus(self) -> dict[int, Gpu]:
        """The GPUs that were used and whose peaks are known, by number."""
        known = {}
        for number, row in self.devices.items():
            gpu = gpus.of(row) if row.name else None
            if gpu is not None:
                known[number] = gpu
        return known

    @cached_property
    def devices(self) -> dict[int, Recorded]:
        """The GPUs that were used, as they were recorded."""
        return {
            row[0]: Recorded(*row)
            for row in self.store.rows(
                """select number, name, sm_count, compute_capability, memory_bytes, clock_hz,
                          bandwidth_bytes_per_s from device where events > 0"""
            )
        }

    @cached_property
    def hardware(self) -> Hardware:
        return Hardware(self.gpus, None, self.facts)

    @cached_property
    def capability(self) -> float:
        """The lowest compute capability of the GPUs that were used. Raises NeedsFacts."""
        self.need_gpu()
        if "hip" in self.facts or any((row.name or "").startswith("AMD") for row in self.devices.values()):
            raise NeedsFacts(
                "needs an NVIDIA GPU: tensor core support is derived from its compute capability"
            )
        texts = [row.compute_capability for row in self.devices.values()]
        known = [gpu.capability for gpu in self.gpus.values()]
        numbers = [float(text) for text in texts if text and text.replace(".", "", 1).isdigit()]
        numbers += [] if len(numbers) == len(texts) else [number for number in known if number is not None]
        if len(numbers) < len(texts):
            raise NeedsFacts(
                "needs the GPU's compute capability, which this recording lacks; record with pyprof, or export all "
                "tables of nsys (TARGET_INFO_GPU)"
            )
        return min(numbers)

    @cached_property
    def launches_recorded(self) -> bool:
        return bool(self.store.rows("select 1 from api limit 1"))

    @cached_property
    def missing_launches(self) -> tuple[int, int]:
        """The number of launches whose work is not in the recording, and that of all launches."""
        return missing_launches(self.store)

    @property
    def on_cpu(self) -> bool:
        """True if nothing ran on a GPU; False also where what ran on it is not in the recording."""
        return not self.used and not self.missing_launches[0]

    @cached_property
    def trains(self) -> bool:
        """True if there is a backward pass."""
        return bool(self.store.rows("select 1 from operator where direction = 1 limit 1"))

    def time(self, length: float, per_step: bool = True) -> str:
        """Return a time in the window as text: that of a step if there are steps, with "a step" if `per_step`."""
        return duration(length / max(self.steps, 1)) + (self.per_step if per_step else "")

    def need_gpu(self) -> None:
        if not self.used:
            raise NeedsFacts(NO_GPU if self.on_cpu else NO_WORK)

    def need_launches(self) -> None:
        self.need_gpu()
        if not self.launches_recorded:
            raise NeedsFacts(
                'needs the calls of the CUDA API; record with pyprof, or "nsys profile -t cuda,nvtx"'
            )

    def need_steps(self) -> None:
        if not self.cut:
            raise NeedsFacts(
                "needs iterations, to separate repeated work from one-time work; call pyprof.step() at the end of "
                "each, or name a key operator"
            )

    def need_fact(self, name: str, what: str) -> str:
        """Return a fact of the run. Raises NeedsFacts."""
        value = self.facts.get(name)
        if value is None:
            raise NeedsFacts(f"needs {what}, which this recording lacks; record with pyprof")
        return value

    # --- sums over the steady iterations

    @cached_property
    def operators(self) -> pd.DataFrame:
        """The table of operators by id, with `source`: the innermost line of the stack."""
        names = (
            "op_id",
            "name",
            "type",
            "mod",
            "module",
            "direction",
            "phase",
            "params",
            "dtype",
            "shapes",
            "eligible",
        )
        rows = self.store.rows(
            f"""select o.id, {", ".join(f"o.{name}" for name in names)}, o.unassociated, k.frames
                from operator o left join stack k on k.id = o.stack order by o.id"""
        )
        frame = pd.DataFrame(rows, columns=["id", *names, "unassociated", "frames"]).set_index("id")
        frame["source"] = [text.rpartition("\n")[2] or None if text else None for text in frame["frames"]]
        return frame

    @cached_property
    def kernel_names(self) -> pd.DataFrame:
        rows = self.store.rows(
            "select id, name as kernel, short_name, kind as what from kernel_name order by id"
        )
        return pd.DataFrame(rows, columns=["id", "kernel", "short_name", "what"]).set_index("id")

    @cached_property
    def ops(self) -> pd.DataFrame:
        """Sums of executions per operator, with its columns."""
        keys = ["calls", "kernels", "kernel_ns", "cpu_ns", "gpu_ns", "overhead_ns"]
        return self._sums(blocks.OPS, 5, keys).join(self.operators, on="operator")

    @cached_property
    def kernels(self) -> pd.DataFrame:
        """Sums of kernels per operator, name and use of tensor cores (as in the table event; 3: unknown)."""
        return self._events(KERNEL)

    @cached_property
    def operator_events(self) -> pd.DataFrame:
        """The same sums of operator events, which a recording without a GPU has instead of kernels."""
        return self._events(OPERATOR)

    def _events(self, kind: int) -> pd.DataFrame:
        keys = [
            "calls",
            "gpu_ns",
            "api_ns",
            "launched",
            "flops",
            "bytes",
            "flops_unknown_ns",
            "bytes_unknown_ns",
        ]
        sums = self._sums(blocks.EVENTS, 3, keys)
        sums = sums[sums["kind"] == kind].join(self.kernel_names, on="name")
        return sums.join(self.operators.rename(columns={"name": "path"}), on="operator").reset_index(
            drop=True
        )

    def _sums(self, shape: blocks.Shape, place: int, columns: list[str]) -> pd.DataFrame:
        parts = []
        for row in self.ids:
            keys, sums = blocks.between(self.store, shape, int(row[place]), int(row[place + 1]))
            parts.append(
                pd.DataFrame({**dict(zip(shape.keys, keys)), **{name: sums[name] for name in columns}})
            )
        whole = (
            pd.concat(parts, ignore_index=True) if parts else pd.DataFrame(columns=[*shape.keys, *columns])
        )
        return whole.groupby(list(shape.keys), as_index=False, sort=True)[columns].sum()

    @cached_property
    def kernel_time(self) -> int:
        """Sum of the times of all kernels."""
        return int(self.kernels["gpu_ns"].sum())

    @cached_property
    def noise(self) -> pd.DataFrame:
        """Calls of operators that take far longer than equal ones, if these are few and hold much of the time."""
        return noise(self)

    # --- single events

    @cached_property
    def host_stretches(self) -> pd.DataFrame:
        """Stretches in which a GPU waits while the CPU is in one place of the program."""
        from pyprof.rules.host_places import host_stretches

        return host_stretches(self)

    def host_work(self, worker: int) -> HostWork:
        """Return what the threads of a worker did in its sample, and before it since the recording began."""
        if worker not in self._work:
            activity = self.source.activity(worker)
            (sample,) = (one for one in self.samples if one.worker == worker)
            self._work[worker] = HostWork(activity, (min(activity.span[0], sample.start), sample.end))
        return self._work[worker]

    @cached_property
    def _replays(self) -> Savings | None:
        """None where nothing on a GPU was launched, or no launch is in the recording."""
        launched = any(sample.event["api"].mask().any() for sample in self.samples)
        return Savings(self) if launched else None

    def waits(self, worker: int) -> Union:
        """Return the time of a worker's sample in which its host waited for the device."""
        return NOTHING if self._replays is None else self._replays.waits(worker)

    def without(self, rule: str, edits: Mapping[int, Edit], otherwise: int) -> int:
        """Return by how many ns the window would be shorter without what a rule is about, by worker. `otherwise`: what
        that took, which is the answer where nothing was launched."""
        self.edits[rule] = edits
        return otherwise if self._replays is None else self._replays.without(edits)

    def beyond(self, rules: Iterable[str], in_time: int) -> int:
        """Return by how many ns the window would be shorter if launches came in time, after what these rules are about
        is removed. `in_time`: the time that the GPU waits for launches."""
        edits = [self.edits[rule] for rule in rules if rule in self.edits]
        if not edits or self._replays is None:
            return in_time
        workers = {number for one in edits for number in one} | set(self._replays.ranks)
        removed = {number: together(one.get(number, Edit()) for one in edits) for number in workers}
        both = {number: edit._replace(in_time=True) for number, edit in removed.items()}
        return min(self._replays.without(both) - self._replays.without(removed), in_time)

    @cached_property
    def samples(self) -> list[Sample]:
        """One of each worker, of its most consecutive iterations."""
        longest = {row[0]: row for row in sorted(self.ids, key=lambda row: row[2] - row[1])}
        cut = self.source.aggregation.iteration_set
        return [read(self.store, longest[worker], self.workers, cut) for worker in sorted(longest)]

    def events(self, names: Sequence[str], select: Callable[[Sample], Ints]) -> pd.DataFrame:
        """Return columns of the events of all samples at the places that `select` returns."""
        parts = [{name: sample.of(name)[select(sample)] for name in names} for sample in self.samples]
        return _concatenate(parts, names)

    def calls(self, kinds: Sequence[str] = ()) -> pd.DataFrame:
        """Return API calls of all samples, of given kinds or all: operator, call, duration_ns."""
        codes = [kind(name) for name in kinds]
        parts = []
        for sample in self.samples:
            mask = np.isin(sample.api["kind"].values, codes) | (not kinds)
            parts.append(
                {name: sample.api[name].values[mask] for name in ("name", "operator", "duration_ns")}
            )
        table = _concatenate(parts, ("name", "operator", "duration_ns"))
        texts = reads.texts(self.store)
        table["call"] = pd.Series([texts.get(code, "") for code in table.pop("name").tolist()], dtype=object)
        return table

    @cached_property
    def sampled_steps(self) -> float:
        """The number of iterations of one worker that the sample covers."""
        return self.steps * self._part

    @cached_property
    def _part(self) -> float:
        total = sum(row[2] - row[1] for row in self.ids)
        return sum(sample.end - sample.start for sample in self.samples) / total if total else 1.0

    def scaled(self, length: float) -> int:
        """Scale a sum of lengths on one thread per worker from the sample to the whole window, of one worker."""
        return int(length / self._part / self.workers) if self.samples else 0

    def on_device(self, length: float) -> int:
        """Scale lengths on devices, of which a worker may have several."""
        return self.scaled(length * len(self.samples) / max(len(self.used), 1))

    # --- figures of the window

    def mean(self, name: str) -> int:
        """Return a length of `iteration_device`, mean over the devices that were used."""
        return int(fmean(device.sums.get(name, 0) for device in self.used)) if self.used else 0

    def part(self, name: str) -> int:
        """Return a part of the wall time, mean over the workers."""
        workers = self.window.workers
        return int(fmean(worker.parts[name] for worker in workers)) if workers else 0

    @property
    def loading(self) -> int:
        """The time that the loop waits for its data loader: in which a GPU is idle because of it, if there is one."""
        return self.idle.get("data loader", 0) if self.source.gpu else self.part("dataloader")

    @property
    def late(self) -> int:
        """The time that a GPU waits for launches that come too late."""
        return self.idle.get("launch-bound", 0)

    def per_device(self, length: float) -> int:
        """Return one device's part of a sum over all devices, at most the length of the window."""
        return max(min(int(length) // max(len(self.used), 1), self.wall), 0)

    def share(self, length: float) -> float:
        return length / self.wall if self.wall else 0.0

    def finding(
        self,
        problem: str,
        advice: str,
        saving: float | None,
        evidence: Iterable[Mapping[str, Any]],
        verify: str,
    ) -> Finding:
        """Return a finding, with its saving limited to the possible range. The rule's id is filled in later."""
        if not self.cut:
            problem += NOT_CUT
        rows = tuple({key: plain(cell) for key, cell in row.items()} for row in list(evidence)[:_TOP])
        bounded = None if saving is None else max(min(int(saving), self.wall), 0)
        return Finding("", problem, advice, bounded, rows, verify)

    def top(self, frame: pd.DataFrame, by: str, **columns: str) -> list[dict[str, Any]]:
        """Return the largest rows of a table; `columns` maps names in the result to columns."""
        largest = frame.sort_values(by, ascending=False, kind="stable").head(_TOP)
        return [dict(zip(columns, row)) for row in largest[list(columns.values())].itertuples(index=False)]

    def by_operator(self, rows: pd.DataFrame) -> list[dict[str, Any]]:
        """Return the operators with the most time, of rows of `kernels`."""
        grouped = rows.groupby("operator", as_index=False).agg(
            time=("gpu_ns", "sum"), calls=("calls", "sum"), path=("path", "first"), source=("source", "first"),
            params=("params", "first"), kernel=("short_name", "first"),
        )  # fmt: skip
        return self.top(
            grouped, "time", operator="path", source="source", params="params", kernel="kernel", kernels="calls",
            time_ns="time",
        )  # fmt: skip


def _concatenate(parts: Sequence[Mapping[str, Ints]], names: Sequence[str]) -> pd.DataFrame:
    empty = np.empty(0, np.int64)
    return pd.DataFrame({name: np.concatenate([part[name] for part in parts] or [empty]) for name in names})
