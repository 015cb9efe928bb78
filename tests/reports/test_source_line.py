# SPDX-License-Identifier: Apache-2.0
"""Time by source line: sums of the detail report, by the lines of its call stacks."""

from __future__ import annotations

from collections import defaultdict

from pyprof import profiles
from tests.build import call, recording
from tests.reports.test_oracle import load, random_profile, seeds


def check(prof: profiles.Profile) -> None:
    own: dict[str | None, list[int]] = defaultdict(lambda: [0] * 5)
    total: dict[str | None, list[int]] = defaultdict(lambda: [0] * 2)
    for row in prof.report("detail").to_dict("records"):
        lines = row["stack"].split("\n") if isinstance(row["stack"], str) else [None]
        gpu, cpu = (0 if row[key] is None or row[key] != row[key] else int(row[key]) for key in ("gpu", "cpu"))
        for place, value in enumerate((1, row["calls"], row["kernels"], gpu, cpu)):
            own[lines[-1]][place] += value
        for line in set(lines):
            total[line][0] += gpu
            total[line][1] += cpu
    table = prof.report("source_line")
    rows = {row["line"] if isinstance(row["line"], str) else None: row for row in table.to_dict("records")}
    assert rows.keys() == total.keys()
    for line, row in rows.items():
        keys = ("operators", "calls", "kernels", "device_self_ns", "host_self_ns")
        assert [row[key] for key in keys] == own[line], line
        assert [row[key] for key in ("device_total_ns", "host_total_ns")] == total[line], line
    order = list(zip(table["device_self_ns"], table["host_self_ns"]))
    assert order == sorted(order, reverse=True)


def test_a_function_and_its_caller(prof: profiles.Profile) -> None:
    check(prof)


def test_a_line_has_what_is_called_from_it() -> None:
    inner = call("torch.mm", (8, 8), (8, 8), trace=("train.py:3", "net.py:7"))
    outer = call("torch.relu", (8, 8), trace=("train.py:3",))
    text = f"{inner}\n    > 60 gemm\n{outer}\n    > 5 relu"
    table = load(recording(text)).report("source_line")
    rows = {row["line"]: (row["device_self_ns"], row["device_total_ns"]) for row in table.to_dict("records")}
    assert rows == {"net.py:7": (60, 60), "train.py:3": (5, 65)}


@seeds(6, 30)
def test_lines_are_sums_of_operators(seed: int) -> None:
    check(random_profile(seed)[1])
