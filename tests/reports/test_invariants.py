# SPDX-License-Identifier: Apache-2.0
"""What holds for every recording, whatever is in it."""

from __future__ import annotations

import copy
import random
import re
from functools import cache

import numpy as np
import pandas as pd

from pyprof import metrics, profiles
from pyprof.metrics import PARTS
from pyprof.reports import every, group_node
from tests.build import Kernel, Launch, Range, Recording
from tests.reports.test_oracle import load, random_profile, rows, seeds


def figures(prof: profiles.Profile) -> dict[str, object]:
    """All that reports say but numbers of rows' places: the same for the same run."""
    table = prof.report("summary")
    return {one.name: rows(prof.report(one.name)) for one in every() if one.name != "summary"} | {
        "summary": rows(table[table["section"] != "System Config"])
    }


def total(prof: profiles.Profile) -> dict[str, int]:
    """Additive numbers of the aggregation."""
    window = prof.source().window
    out = {f"part {p}": sum(w.parts[p] for w in window.workers) for p in PARTS} | dict(window.totals)
    out |= {"wall": window.wall}
    for device in window.used:
        for name, number in device.sums.items():
            out[f"{device.worker} {device.number} {name}"] = number
    return {name: number for name, number in out.items() if not name.endswith("operators")}


@cache
def cut(seed: int) -> tuple[Recording, profiles.Profile]:
    """A random recording with marked steps."""
    what, prof = random_profile(seed)
    if what.steps:
        return what, prof
    what = copy.deepcopy(what)
    end = max(k.end for k in what.kernels)
    what.steps = [(0, 1, end // 3 + 2), (1, end // 3 + 2, end)]
    return what, load(what)


@seeds(6, 12)
def test_parts_are_a_partition_of_every_iteration_and_of_any_range_of_them(seed):
    _, prof = cut(seed)
    steps = prof.steps
    parts = steps[[f"{part}_ns" for part in PARTS]]
    assert (parts >= 0).all().all()
    assert (parts.sum(axis=1) == steps["duration_ns"]).all()


@seeds(6, 12)
def test_numbers_of_a_range_are_those_of_its_pieces(seed):
    """Sums of all iterations are the sum over any split; smallest and largest are those of the pieces."""
    _, prof = cut(seed)
    last = int(prof.steps["step"].max())
    if last == 0:
        return
    middle = random.Random(seed).randint(0, last - 1)
    pieces, minima = [], []
    for first, stop in ((0, middle), (middle + 1, last)):
        prof.aggregate(first, stop)
        pieces.append(total(prof))
        minima.append(prof.report("op_type").set_index("type")["cpu_min"])
    prof.aggregate()
    whole = total(prof)
    keys = [
        k for k in whole if not k.startswith(("using", "missed", "others", "eligible_tc_"))
    ]  # of what used TC in a piece
    assert {k: whole[k] for k in keys} == {k: sum(p.get(k, 0) for p in pieces) for k in keys}
    smallest = pd.concat(minima).groupby(level=0).min()
    assert prof.report("op_type").set_index("type")["cpu_min"].to_dict() == smallest.to_dict()


def shuffled(what: Recording, seed: int) -> Recording:
    out = copy.deepcopy(what)
    rng = random.Random(seed)
    for part in (out.ranges, out.launches, out.kernels, out.files, out.steps):
        rng.shuffle(part)
    return out


@seeds(6, 12)
def test_the_order_of_rows_numbers_of_streams_and_the_zero_of_the_clock_change_nothing(seed):
    what, prof = cut(seed)
    other = shuffled(what, seed)
    for kernel in other.kernels:
        kernel.stream = {7: 8, 8: 7}.get(kernel.stream, kernel.stream)
    for one in (*other.ranges, *other.launches, *other.kernels, *other.files):
        one.start += 10**15
        one.end = None if one.end is None else one.end + 10**15
    other.steps = [(n, a + 10**15, b + 10**15) for n, a, b in other.steps]
    mine, theirs = figures(prof), figures(load(other))
    for table in (mine, theirs):
        for row in table["iteration"]:
            del row["stream"]
        for row in table["expert_systems"]:  # a finding names a stream by its number
            row["problem"] = re.sub(r"stream \d", "stream", str(row["problem"]))
    assert theirs == mine


@seeds(6, 15607)  # the first iteration's own kernel begins when the one before it ends
def test_events_without_length_change_no_length(seed):
    what, prof = cut(seed)
    more = copy.deepcopy(what)
    some = random.Random(seed).choice(more.kernels)
    more.kernels.append(Kernel("void nothing()", some.start, some.start, None, some.process, some.device, 99))
    before, after = total(prof), total(load(more))
    lengths = [k for k in before if "calls" not in k and "kernels" not in k]
    assert {k: after.get(k) for k in lengths} == {k: before[k] for k in lengths}


@seeds(6, 12)
def test_figures_keep_their_bounds(seed):
    _, prof = cut(seed)
    window = prof.source().window
    for name, one in metrics.METRICS.items():
        found = one.function(window)
        if found is not None and one.unit == "%" and name != "iteration_variation":
            assert 0 <= found <= 100 + 1e-9, name
        assert found is None or found >= 0, name
    for device in window.used:
        sums = device.sums
        assert sums["kernel_busy_ns"] <= sums["busy_ns"] <= device.wall
        assert sums["exposed_communication_ns"] <= sums["communication_ns"]
        assert sums["waited_ns"] <= sums["busy_ns"]
        assert sums["tc_ns"] <= sums["kernel_ns"]
    for row in rows(prof.report("detail")):
        for name in ("cpu", "gpu", "overhead", "idle"):
            assert 0 <= row[f"{name}_min"] <= row[f"{name}_avg"] <= row[f"{name}_max"] <= row[name]
        assert row["overhead"] <= row["cpu"]


@seeds(6, 12)
def test_a_group_is_the_sum_of_what_is_directly_inside_it(seed):
    _, prof = cut(seed)
    tree = {row["name"]: row for row in rows(prof.report("group_node"))}
    detail = rows(prof.report("detail"))
    assert next(iter(tree)) == "/"
    if not detail:  # nothing ran in the steps: a sum of nothing is unknown
        assert tree["/"]["calls"] == 0
        assert tree["/"]["cpu"] is None
        return
    for path, row in tree.items():
        inside = [r for n, r in tree.items() if n != "/" and (n.rstrip("/").rpartition("/")[0] + "/" == path)]
        for one in detail:
            outside = one["type"].startswith("unassociated_")
            if ("unassociated/" if outside else one["name"].rpartition("/")[0] + "/") == path:
                inside.append({**one, "ops": 1, "using_tc": bool(one["using_tc"])})
        for key in ("calls", "cpu", "gpu", "overhead", "idle", "ops", "eligible", "using_tc"):
            assert row[key] == sum(r[key] for r in inside), (path, key)
        for key in ("cpu", "gpu", "overhead", "idle"):
            assert row[f"{key}_min"] == min(r[f"{key}_min"] for r in inside)
            assert row[f"{key}_max"] == max(r[f"{key}_max"] for r in inside)


def test_a_tree_of_twenty_levels_and_fifty_thousand_groups():
    rng = random.Random(1)
    paths = {"/".join(f"n{rng.randint(0, 9)}" for _ in range(depth % 20 + 1)) for depth in range(8000)}
    paths |= {"/".join(f"d{i}" for i in range(20))}
    given_paths = sorted(paths)
    names, at, parent, level = group_node.tree(given_paths)
    sums = group_node.add_up("sum", np.arange(len(given_paths)), at, parent, level)
    least = group_node.add_up("min", np.arange(len(given_paths)), at, parent, level)
    assert len(names) > 50_000
    assert level.max() == 20
    assert sums[0] == sum(range(len(given_paths)))
    assert least[0] == 0
    children = np.zeros_like(sums)
    np.add.at(children, parent[1:], sums[1:])
    np.add.at(children, at, np.arange(len(given_paths)))
    assert (children == sums).all()
    for i in rng.sample(range(1, len(names)), 200):
        mine = [n for n, path in enumerate(given_paths) if (path + "/").startswith(names[i] + "/")]
        assert sums[i] == sum(mine)
        assert names[i].rpartition("/")[0] == names[parent[i]]
        assert parent[i] < i


def test_recordings_with_next_to_nothing_have_all_reports():
    """Copies alone; an operator without a GPU event beside a kernel elsewhere."""
    copies = Recording(kernels=[Kernel("c", 5, 9, 1, size=8, copy_kind=1)], launches=[Launch(1, 3, 1)])
    apart = Recording(
        kernels=[Kernel("k", 5, 9)],
        ranges=[Range("{'pyprof': 1, 'mod': 'torch', 'op': 'mm', 'args': []}", 1, 4)],
    )
    for what in (copies, apart):
        prof = load(what)
        for one in every():
            assert list(prof.report(one.name).columns) == [c.key for c in one.columns]


def test_what_happens_at_the_very_end_is_not_lost():
    """The last iteration is open: an event without length at the end of the recording is in it."""
    prof = load(Recording(kernels=[Kernel("k", 5, 9), Kernel("k", 9, 9)]))
    assert prof.report("kernel")["calls"].tolist() == [2]
    assert prof.report("detail")["calls"].tolist() == [2]
    assert len(prof.report("iteration")) == 2
