# SPDX-License-Identifier: Apache-2.0
"""Use of the device by any group of kernels: roofline efficiency, HFU, MFU, limit, tensor cores.

The figures of one kernel are those of docs/columns.md (eff, hfu, mfu, bound, tcwhy). Those of a group are sums over its
kernels, so that each is the mean weighted with the kernels' times:

    efficiency = roofline times / device times of the kernels whose roofline is known
    mfu        = the same with model FLOPs
    hfu        = times at the peak for the executed FLOPs / device times of the kernels for which these are known
    bound, tcwhy: the verdict with the most device time, and its share of that of the kernels that have one

Two kernels of 30 ns and 10 ns, roofline times 15 ns and unknown: efficiency 50 %, of 75 % of the time. If only zeros
are known, and not of everything, the figure is unknown: what carries the work is not in it. The time without a roofline
is that of WHY, of which the longest is named: 20 ns of kernels without shapes, 10 ns without FLOPs: the shapes.

An efficiency is at most 100 %. Convolutions by Winograd or FFT execute fewer FLOPs than their definition has, and how
many is unknown: their roofline counts in MFU alone. A group above 100 % has its data from a cache, at least in part:
how much memory moved is unknown, and so is the efficiency. Its bound is then the cache, in place of memory.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd

from pyprof.core.model import Bools, Floats, Ints
from pyprof.facts.steps.source import Source
from pyprof.measures.columns import Column
from pyprof.measures.launches import APART, SUMS
from pyprof.measures.queries import SELECTED, frame
from pyprof.metrics.work import MOST
from pyprof.store.kinds import COMPUTES

LATENCY = 40.0  # %, the efficiency below which rule R36 also reports an operator
_TC_USED, _TC_NOT_APPLICABLE = 1, 2
UNLINKED = "o.unassociated > 0"  # of operators: what was launched by none that was recorded
# Why a kernel has no roofline, the first that holds.
WHY = {
    "unlinked_ns": "launched by no operator that was recorded",
    "shapeless_ns": "the shapes of its operator were not recorded",
    "flopless_ns": "its FLOPs are not known: its operator has no formula for them, or they depend on values",
    "byteless_ns": "its bytes are not known: its operator has no formula for them, or they depend on values",
    "peakless_ns": "the peak of the GPU for its type is not known",
}
_ALGORITHM = "it computes by Winograd or FFT: fewer FLOPs than its definition has, and it is unknown how many"
_CACHE = "faster than memory: its data was in a cache, and it is unknown how much"
_HELPER = "another kernel of its call carries the work"
_USED = tuple(name for name in SUMS if name not in ("calls", "flops", "bytes"))
_NO_KERNEL = "it launched no kernel itself"
_NO_TIME = "it took no time"
_COPY = "copies and sets have none"


def columns(of: str, extra: bool = False) -> tuple[Column, ...]:
    """Return the columns of a report about kernels, "its kernels" for example."""
    return (
        Column(
            "efficiency", "Roofline Efficiency (%)", "%",
            f"Roofline time of {of} as a share of their device time, where it is known (docs/roofline.md). Bytes "
            "are those of all operands, as if memory moved them. Empty where the L2 cache must have held some of them, "
            "since memory is not that fast; for convolutions by Winograd or FFT, which compute less than the "
            "definition; and if they carry no work: another kernel of their call does.",
            float, extra,
        ),
        Column(
            "roofline_known", "Roofline Known (%)", "%",
            f"Share of the device time of {of} for which the roofline is known; efficiency covers it. MFU covers "
            "Winograd and FFT as well.",
            float, extra,
        ),
        Column(
            "hfu", "HFU (%)", "%",
            f"Hardware FLOPs utilization: time that the FLOPs executed by {of} take at the peak, as a share of their "
            "device time, where it is known; not for Winograd and FFT, nor above 105 %.",
            float, extra,
        ),
        Column(
            "hfu_known", "HFU Known (%)", "%",
            f"Share of the device time of {of} for which HFU is known.", float, extra,
        ),
        Column(
            "mfu", "MFU (%)", "%",
            "Model FLOPs utilization: like HFU, for the FLOPs that the model needs.", float, extra,
        ),
        Column(
            "bound", "Bound", "",
            f"Limit of {of}, the one with the most device time: compute or memory, by the roofline; cache if they take "
            "less time than memory needs for their bytes; latency if their "
            f"efficiency together is below {LATENCY:.0f} %, although tensor cores did all that they could: then "
            "neither explains the time. Some of them may reach more alone, so latency of an operator need not be that "
            "of each of its kernels. - if they carry no work; empty if unknown.", str, extra,
        ),
        Column(
            "bound_share", "Bound Share (%)", "%",
            "Device time of kernels with this limit, as a share of that of all with a known one; empty for latency and "
            "cache, which all of them have together.", float, extra,
        ),
        Column(
            "tcwhy", "TC Reason", "",
            f"Use of tensor cores by {of}, or the reason against it, as in docs/roofline.md: the one with the most "
            "device time; - if none of them is a product; empty if unknown, and on the CPU.", str, extra,
        ),
        Column(
            "tcwhy_share", "TC Reason Share (%)", "%",
            "Device time of kernels with this reason, as a share of that of all products among them.", float, extra,
        ),
        Column(
            "roofline_why", "Roofline Unknown", "",
            f"Why {of} have no efficiency, or not all of them: no roofline, which MFU and the bound need as well; "
            "Winograd or FFT; or a cache. The reason with the most device time; empty if it is of all, and without a "
            "GPU.", str, extra,
        ),
    )  # fmt: skip


KEYS = tuple(column.key for column in columns(""))


def explained(source: Source, table: pd.DataFrame) -> pd.DataFrame:
    """Return a table with the figures of its rows, in which those without a kernel say so."""
    if not source.gpu:
        return table
    copies = table["kind"].isin(["memcpy", "memset"]) if "kind" in table else np.zeros(len(table), bool)
    reason = pd.Series(np.where(copies, _COPY, _NO_KERNEL), table.index)
    has_none = table["roofline_known"].isna() & table["roofline_why"].isna()
    return table.assign(roofline_why=table["roofline_why"].astype(object).mask(has_none, reason))


def of_operators(source: Source, by: Sequence[str]) -> pd.DataFrame:
    """Return the figures of groups of kernels in the aggregation. `by`: columns of op_kernel_stat `s`, or of the
    kernel's name `k`, which are the index of the result."""
    key = ("efficiency", source.aggregation.id, source.worker, *by)
    return source.store.cached(key, lambda: _of_operators(source, by)).copy()


def _of_operators(source: Source, by: Sequence[str]) -> pd.DataFrame:
    names = [f"key{number}" for number in range(len(by))]
    keys = ", ".join(f"{column} as {name}" for column, name in zip(by, names))
    sums = ", ".join(f"s.{name}" for name in (*APART, *SUMS))
    table = frame(
        source,
        f"""select {keys}, {sums} from op_kernel_stat s join kernel_name k on k.id = s.name
            where {SELECTED} and s.{COMPUTES}""",
    )
    return figures(source, table, names)


def _reasons(source: Source, rows: dict[str, Ints]) -> dict[str, Ints]:
    """Return the columns WHY of rows: their time without a roofline, by why it is unknown. Within a row FLOPs, bytes
    and peaks are told apart by their times."""
    unlinked, shapeless = source.store.cached(("operators of efficiency",), lambda: _operators_of(source))
    left, flops, size = (rows[f"{name}_unknown_ns"] for name in ("roofline", "flops", "bytes"))
    linked = ~unlinked[rows["operator"]]
    shaped = linked & ~shapeless[rows["operator"]]
    return {
        "unlinked_ns": np.where(linked, 0, left),
        "shapeless_ns": np.where(linked & ~shaped, left, 0),
        "flopless_ns": np.where(shaped, np.minimum(flops, left), 0),
        "byteless_ns": np.where(shaped, np.maximum(np.minimum(size, left) - flops, 0), 0),
        "peakless_ns": np.where(shaped, np.maximum(left - np.maximum(flops, size), 0), 0),
    }


def _operators_of(source: Source) -> tuple[Bools, Bools]:
    """Return, by number, which operators are none that was recorded, and whose shapes were not."""
    rows = source.store.rows(f"select o.id, {UNLINKED}, o.shapes is null from operator o")
    flags = np.zeros((2, max((row[0] for row in rows), default=0) + 1), bool)
    for number, *own in rows:
        flags[:, number] = own
    return flags[0], flags[1]


def figures(source: Source, table: pd.DataFrame, by: Sequence[str]) -> pd.DataFrame:
    """Return the figures of groups of rows, which have the columns `by`, and SUMS and APART of `launches`."""
    grouped = table.groupby(list(by), sort=True)
    group, index = grouped.ngroup().to_numpy(np.int64), grouped.size().index
    rows = {name: table[name].to_numpy(np.int64) for name in (*APART, *_USED)}
    # Winograd and FFT: how many FLOPs they execute is unknown; the roofline of the definition is no limit of theirs.
    other = rows["hardware_unknown_ns"] > rows["roofline_unknown_ns"]
    rows |= _reasons(source, rows) | {
        "least_ns": np.where(other, 0, rows["roofline_ns"]),
        "least_unknown_ns": np.where(other, rows["gpu_ns"], rows["roofline_unknown_ns"]),
        "executed_ns": np.where(other, rows["gpu_ns"] - rows["roofline_unknown_ns"], 0),
        # Of kernels that use tensor cores, or are no products, there is nothing that these could do.
        "idle_ns": np.where(np.isin(rows["tc"], (_TC_USED, _TC_NOT_APPLICABLE)), 0, rows["gpu_ns"]),
    }
    sums = {name: np.zeros(len(index), np.int64) for name in rows if name not in APART}
    for name, values in sums.items():
        np.add.at(values, group, rows[name])
    total = sums["gpu_ns"]
    out: dict[str, Any] = {}
    for name, needed, unknown in (
        ("efficiency", sums["least_ns"], "least"),
        ("hfu", sums["hardware_ps"] / 1000, "hardware"),
        ("mfu", sums["model_ps"] / 1000, "roofline"),
    ):
        known = total - sums[f"{unknown}_unknown_ns"]
        only_zeros = (needed == 0) & (known < total)
        out[name] = np.where(only_zeros, np.nan, _percent(needed, known))
        if name != "mfu":
            out["roofline_known" if unknown == "least" else "hfu_known"] = _percent(known, total)
    out["hfu"] = np.where(out["hfu"] > MOST, np.nan, out["hfu"])
    verdicts = source.store.rows("select id, bound, tensor_cores from verdict")
    for name, place in (("bound", 1), ("tcwhy", 2)):
        texts = {row[0]: row[place] for row in verdicts}
        out[name], out[f"{name}_share"] = _most(group, len(index), rows["verdict"], rows["gpu_ns"], texts)
    in_cache = out["efficiency"] > 100
    cached = in_cache & (out["bound"] == "memory")
    helpers = out["bound"] == "-"  # another kernel carries their work, and their time is part of its call's
    out["efficiency"] = np.where(in_cache | helpers, np.nan, out["efficiency"])
    limited = np.isin(out["bound"].astype(str), ("compute", "memory"))
    latency = (out["efficiency"] < LATENCY) & limited & ~cached & (sums["idle_ns"] == 0)
    out["bound"] = np.where(cached, "cache", np.where(latency, "latency", out["bound"]))
    out["bound_share"] = np.where(cached | latency, np.nan, out["bound_share"])
    texts_of = {**WHY, "executed_ns": _ALGORITHM}
    reasons = np.stack([sums[name] for name in texts_of])
    why = np.array(list(texts_of.values()), object)[reasons.argmax(axis=0)]
    why[reasons.max(axis=0) <= 0] = None
    for rows_of_text, text in ((in_cache, _CACHE), (helpers, _HELPER), (total <= 0, _NO_TIME)):
        why[rows_of_text] = text
    out["roofline_why"] = why
    if not source.gpu:
        out |= dict.fromkeys(("efficiency", "roofline_known", "hfu", "hfu_known", "mfu"), np.nan)
        out["roofline_why"] = None
    return pd.DataFrame({key: out[key] for key in KEYS}, index=index)


def _percent(part: Ints | Floats, whole: Ints) -> Floats:
    """Return a share in percent, missing of nothing."""
    out = np.full(len(whole), np.nan)
    np.divide(100 * part, whole, out=out, where=whole > 0)
    return out


def _most(
    group: Ints, groups: int, verdict: Ints, time: Ints, texts: Mapping[int, str | None]
) -> tuple[npt.NDArray[np.object_], Floats]:
    """Return, for each group, the text with the most time, of equal ones the first in the alphabet, and its share of
    the time of all known ones. A text of `-`, of what carries no work, counts only where there is no other."""
    names = sorted({text for text in texts.values() if text is not None} - {"-"})
    code = np.full(max(texts, default=0) + 1, len(names) + 1)  # unknown
    for number, text in texts.items():
        if text is not None:
            code[number] = len(names) if text == "-" else names.index(text)
    sums, seen = np.zeros((groups, len(names) + 2), np.int64), np.zeros((groups, len(names) + 2), bool)
    np.add.at(sums, (group, code[verdict]), time)
    seen[group, code[verdict]] = True
    own = np.where(seen, sums, -1)[:, : len(names)]
    known, first = own.max(axis=1, initial=-1), own.argmax(axis=1) if names else np.zeros(groups, np.int64)
    text = np.array([*names, None], object)[first]
    text[known < 0] = None
    text[(known < 0) & seen[:, len(names)]] = "-"
    return text, np.where(known >= 0, _percent(known, sums[:, : len(names)].sum(axis=1)), np.nan)
