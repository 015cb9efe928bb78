# SPDX-License-Identifier: Apache-2.0
"""Clocks, critical path and root causes across ranks, against what was planted in simulated ranks."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from pyprof import profiles
from pyprof.core.registry import load_folder
from pyprof.core.units import duration
from pyprof.facts.path.path_walk import paths
from pyprof.facts.ranks.rank_clocks import clocks, fit
from pyprof.reports.headline import late_rank
from pyprof.rules import RULES
from pyprof.rules.context import Run
from pyprof.rules.evaluation import judge
from tests.reports.simulated import FAULTS, MS, SLOW_LINK, US, Plan, files, plan, write

STEPS = 6
OFFSET = 5 * US


@pytest.fixture(autouse=True)
def in_this_process(monkeypatch: pytest.MonkeyPatch) -> None:
    """Files of a few events are read faster than a process starts."""
    monkeypatch.setattr("pyprof.parse.reader_process.cores", lambda: 1)


def load(folder: Path, what: Plan, seed: int) -> profiles.Profile:
    return profiles.load(write(folder, files(what, STEPS, seed)))


def blamed(prof: profiles.Profile) -> pd.DataFrame:
    table = prof.report("root_cause")
    return table[table["saving_ns"].notna()]


def check_clocks(prof: profiles.Profile, what: Plan, traces: list[dict[str, Any]]) -> None:
    """Offsets are right from the first compared end to the last; times of a run count from its first event."""
    known = clocks(prof.source().store)
    reference = next(clock.worker for clock in known.values() if clock.line and clock.line.at == 0)
    first = min(one["ts"] * 1000 for trace in traces for one in trace["traceEvents"])
    ends = [one["ts"] * 1000 + one["dur"] * 1000 for one in traces[reference]["traceEvents"] if "nccl" in one["name"]]
    for time in (min(ends), (min(ends) + max(ends)) / 2, max(ends)):
        true = (time - what.offset[reference]) / (1 + what.drift[reference])
        for rank in range(what.ranks):
            moved = known[rank].forward(what.own(rank, true) - first)
            assert abs(moved - (time - first)) < OFFSET, (rank, known[rank].line)


def length(what: Plan, seed: int) -> float:
    """Time from the end of the first step to that of the last, ns, by the clock of rank 0."""
    steps = [one for one in files(what, STEPS, seed)[0]["traceEvents"] if one["name"].startswith("ProfilerStep")]
    return 1000 * (steps[-1]["ts"] + steps[-1]["dur"] - steps[0]["ts"] - steps[0]["dur"])


def check_blame(prof: profiles.Profile, what: Plan, seed: int) -> None:
    expected = FAULTS[what.fault]
    rows = blamed(prof)
    if expected is None:
        assert not len(rows), rows.iloc[:, :12]
        assert any("nobody is to blame" in note for note in prof.report("root_cause")["note"].dropna())
        return
    top = rows.iloc[0]
    assert (top["worker"], top["part"], top["line"]) == (f"rank{what.guilty}", *expected)
    assert set(rows["worker"]) == {f"rank{what.guilty}"}
    # The same random numbers without the fault. The first collective, in the first step, blames nobody.
    cost = length(what, seed) - length(what._replace(fault="none"), seed)
    assert top["saving_ns"] == pytest.approx(cost, rel=0.15)


@pytest.mark.parametrize(
    "fault", [*FAULTS][:-3] + [pytest.param(one, marks=pytest.mark.long) for one in [*FAULTS][-3:]]
)
def test_the_guilty_rank_and_line_are_named(tmp_path, fault):
    seed = [*FAULTS].index(fault)
    what = plan(seed, fault)
    traces = files(what, STEPS, seed)
    prof = profiles.load(write(tmp_path, traces))
    check_clocks(prof, what, traces)
    check_blame(prof, what, seed)


@pytest.fixture(scope="module")
def slow(tmp_path_factory) -> tuple[Plan, list[dict[str, Any]]]:
    what = plan(3, "operator")
    return what, files(what, STEPS, 3)


@pytest.fixture(scope="module")
def slow_run(slow, tmp_path_factory) -> profiles.Profile:
    return profiles.load(write(tmp_path_factory.mktemp("slow"), slow[1]))


def test_recordings_that_start_later_move_no_blame(slow, slow_run, tmp_path):
    """The clock of a rank, the guilty one or another, is 10 ms off, as if its recording had begun that much later."""
    what, traces = slow
    for rank in (what.guilty, (what.guilty + 1) % what.ranks):
        moved = copy.deepcopy(traces)
        for one in moved[rank]["traceEvents"]:
            one["ts"] += 10_000
        prof = profiles.load(write(tmp_path / f"moved{rank}", moved))
        columns = ["worker", "part", "line", "operator", "caused_ns", "there_ns", "collectives"]
        assert blamed(prof)[columns].equals(blamed(slow_run)[columns])
        saving = blamed(prof)["saving_ns"].tolist()
        assert saving == pytest.approx(blamed(slow_run)["saving_ns"].tolist(), abs=OFFSET)


def test_a_step_that_began_late_is_marked_and_blames_nobody(tmp_path):
    what = plan(2, "none")._replace(ranks=3, late_start=[0, 10 * MS, 0])
    rows = load(tmp_path, what, 2).report("root_cause")
    assert not rows["saving_ns"].notna().any()
    (row,) = rows[rows["worker"].notna()].to_dict("records")
    assert (row["worker"], row["part"], row["collectives"]) == ("rank1", "before the recording", 1)
    assert row["caused_ns"] == pytest.approx(10 * MS, rel=0.05)
    assert any("not recorded; nobody is blamed" in note for note in rows["note"].dropna())


def test_paths_add_up_to_the_steps_and_go_over_the_guilty_line(slow, slow_run):
    what, prof = slow[0], slow_run
    steps = prof.report("step_time")
    lengths = {(row.worker, row.step): row.total_ns for row in steps.itertuples()}
    table = prof.report("critical_path", by="step")
    sums = table.groupby(["step", "ends_on"])["total_ns"].sum()
    assert len(sums) == STEPS
    for (step, worker), length in sums.items():
        assert length == lengths[worker, step]
    own = prof.report("critical_path", by="step", ranks="own").groupby(["ends_on", "step"])["total_ns"].sum()
    assert own.to_dict() == lengths
    by_line = prof.report("critical_path", by="line")
    top = by_line.iloc[0]
    assert (top["part"], top["line"]) == ("host", "train.py:20")
    assert top["total_ns"] > STEPS * what.extra
    guilty = prof.report("critical_path").query("line == 'train.py:20' and part == 'host'")
    assert guilty.iloc[0]["worker"] == f"rank{what.guilty}"


def test_the_headline_names_rank_and_line(slow, slow_run):
    what, prof = slow[0], slow_run
    # The place has what the median rank spends there taken off: its usual 100 us a step.
    assert blamed(prof).iloc[0]["there_ns"] == pytest.approx((STEPS - 1) * what.extra, rel=0.01)
    sentence = late_rank(prof.source())
    assert sentence.startswith(f"The ranks wait for rank{what.guilty}: it is ")
    assert "host operators (aten::nonzero, train.py:20). Without that a step would take" in sentence


def test_the_rule_saves_what_the_report_says(slow, slow_run):
    """A step of the rule is as much shorter as the report has it, whichever steps the rule looks at."""
    what, prof = slow[0], slow_run
    run, row = Run(prof.source()), blamed(prof).iloc[0]
    load_folder("pyprof.rules")
    finding = judge(RULES["R30"], run).finding
    assert finding is not None
    assert finding.saving == pytest.approx(row["saving_ns"] / STEPS * run.steps, abs=1)
    assert finding.saving / run.steps == pytest.approx(row["step_avg"] - row["without_avg"], abs=1)
    assert f"wait for rank{what.guilty} (GPU 0), mostly for more time in host operators" in finding.problem
    assert "train.py:20)" in finding.problem
    assert f"takes {duration(row['step_avg'])}, without that {duration(row['without_avg'])}" in finding.problem


def test_segments_touch(slow_run):
    for across in (True, False):
        for group in paths(slow_run.source(), across, {}):
            assert len(group.steps) > 1
            for number, step in enumerate(group.steps):
                path = group.segments[group.segments["path"] == number]
                low, high = path["low"].tolist(), path["high"].tolist()
                assert (high[0], low[-1]) == (step.end, step.start)
                assert high[1:] == low[:-1]
                assert all(a < b for a, b in zip(low, high))


def test_a_slow_link_is_communication_of_the_path(tmp_path):
    tables = {}
    for fault in ("none", "link"):
        prof = load(tmp_path / fault, plan(4, fault), 4)
        tables[fault] = prof.report("critical_path", by="part").groupby("part")["total_ns"].sum()
    more = tables["link"]["communication"] - tables["none"]["communication"]
    assert more == pytest.approx(2 * STEPS * SLOW_LINK, rel=0.01)


def test_the_other_ranks_wait_for_the_guilty_one(slow, slow_run):
    """All others wait once a step for the planted time, as their own paths have it."""
    what = slow[0]
    table = slow_run.report("exposed").set_index("worker")
    assert set(table["library"]) == {"NCCL"}
    for rank in range(what.ranks):
        waiting = table.loc[f"rank{rank}", "waiting_ns"]
        if rank == what.guilty:
            assert waiting < 0.05 * STEPS * what.extra
        else:
            assert waiting == pytest.approx(STEPS * what.extra, rel=0.05)


def test_a_rank_alone_says_why_it_knows_no_cause(slow, tmp_path):
    _, traces = slow
    prof = profiles.load(write(tmp_path, traces[:1]))
    (note,) = prof.report("root_cause")["note"]
    assert note.startswith("One rank was recorded")
    assert not len(prof.report("clocks"))


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        (lambda one: None if "nccl" in one["name"] else one, "No collective on a GPU was recorded"),
        (
            lambda one: (
                {**one, "args": {k: v for k, v in one["args"].items() if k not in ("Seq", "Process Group Name")}}
                if "nccl" in one["name"] else one
            ),
            "No collective could be matched on several ranks (clocks of several hosts and no process groups)",
        ),
        (
            lambda one: None if one["name"].startswith("ProfilerStep") else one,
            "The program marked no steps: iterations stand for them.",
        ),
    ],
    ids=["collectives", "groups", "steps"],
)  # fmt: skip
def test_what_is_not_known_is_said(slow, tmp_path, change, sentence):
    _, traces = slow
    less = [
        {**trace, "traceEvents": [new for one in trace["traceEvents"] if (new := change(one))]} for trace in traces[:2]
    ]
    prof = profiles.load(write(tmp_path, less))
    notes = prof.report("root_cause")["note"].dropna().tolist()
    assert any(note.startswith(sentence) for note in notes), notes


def test_a_clock_is_fitted_in_spite_of_late_ends():
    """Every third end is up to 300 us late on one of the ranks: a fit by least squares is off by 50 us."""
    import numpy as np

    time = np.arange(60) * 100 * MS
    late = np.where(np.arange(60) % 3 == 0, np.arange(60) * 5 * US, 0)
    line = fit(time, 7 * MS + time // 100_000 + late)
    assert line.drift == pytest.approx(10e-6, rel=0.05)
    assert abs(line.offset(0) - 7 * MS) < OFFSET


def test_ranks_without_a_common_collective_are_compared_over_others(tmp_path):
    """Each rank shares a group with the next: the clock of the last is known only from that of the one before."""
    what = plan(2, "none")._replace(ranks=4, offset=[0, 3 * MS, -4 * MS, 9 * MS], drift=[0.0] * 4, late_start=[0] * 4)
    traces = files(what, STEPS, 1)
    for rank, trace in enumerate(traces):
        kept = []
        for one in trace["traceEvents"]:
            number = one["args"].get("Seq")
            if number is not None:
                group = number % 3
                if rank not in (group, group + 1):
                    continue
                one["args"] |= {"Process Group Name": str(group), "Group size": 2}
            kept.append(one)
        trace["traceEvents"] = kept
    table = profiles.load(write(tmp_path, traces)).report("clocks").set_index("worker")
    apart = table["offset_ns"] - table.loc["rank0", "offset_ns"]
    assert apart["rank1"] == pytest.approx(-3 * MS, abs=OFFSET)
    assert apart["rank2"] == pytest.approx(4 * MS, abs=2 * OFFSET)
    assert apart["rank3"] == pytest.approx(-9 * MS, abs=3 * OFFSET)
