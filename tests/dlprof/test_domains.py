# SPDX-License-Identifier: Apache-2.0
"""NVTX domains: read from recordings of nsys and nvprof, and each with reports of its own."""

from __future__ import annotations

import os
import sqlite3
from pathlib import Path

import pandas as pd
import pytest

from pyprof.dlprof import modes
from pyprof.parse import loader
from tests.build import call, recording, write_nsys, write_nvprof
from tests.dlprof.conftest import Run

# Two libraries mark the same launches: `outer` calls torch.relu what `inner` calls linear.
TEXT = f"""
{call("torch.relu", (2, 3))}
    > 7 outer_kernel
    {call("linear", (2, 3), (4, 3))}
        > 40 volta_sgemm
plain
    > 5 lone_kernel
"""


@pytest.fixture
def two(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An nsys file whose ranges are of the domains `inner` (registered name) and `a/b`, and of none."""
    monkeypatch.chdir(tmp_path)
    path = write_nsys(tmp_path / "nsys.sqlite", recording(TEXT))
    connection = sqlite3.connect(path)
    connection.execute("update NVTX_EVENTS set domainId = 3 where text like '%relu%'")
    connection.execute("update NVTX_EVENTS set domainId = 2 where text like '%linear%'")
    tid = connection.execute("select globalTid from NVTX_EVENTS").fetchone()[0]
    connection.execute("insert into StringIds values (900, 'inner')")
    new = "insert into NVTX_EVENTS (start, eventType, domainId, textId, text, globalTid) values (?, 75, ?, ?, ?, ?)"
    connection.execute(new, (999, 2, 900, None, tid))  # a name may come after its ranges
    connection.execute(new, (0, 3, None, "a/b", tid))
    connection.execute(new, (0, 2, None, "of another process", tid + (1 << 24)))
    connection.commit()
    connection.close()
    return path


def test_domains_of_nsys_have_the_names_of_their_process(two: Path):
    trace = loader.load(two)
    texts = [trace.strings[text] for text in trace.ranges.text]
    names = [trace.strings[domain] for domain in trace.ranges.domain]
    found = {
        next(word for word in ("relu", "linear", "plain") if word in text): name for text, name in zip(texts, names)
    }
    assert found == {"relu": "a/b", "linear": "inner", "plain": ""}
    assert modes.domains(trace) == ["a/b", "default", "inner"]


def test_a_domain_without_a_name_has_a_number(tmp_path: Path):
    path = write_nsys(tmp_path / "nsys.sqlite", recording(TEXT))
    connection = sqlite3.connect(path)
    connection.execute("update NVTX_EVENTS set domainId = 5 where text = 'plain'")
    connection.commit()
    connection.close()
    assert modes.domains(loader.load(path)) == ["default", "domain 5"]


def test_domains_of_nvprof(tmp_path: Path):
    path = write_nvprof(tmp_path / "net.sql", recording(TEXT))
    connection = sqlite3.connect(path)
    connection.execute("insert into StringTable values (900, 'inner')")
    connection.execute(
        """update CUPTI_ACTIVITY_KIND_MARKER set domain = 900
           where id in (select id from CUPTI_ACTIVITY_KIND_MARKER where name in
                        (select _id_ from StringTable where value like '%linear%'))"""
    )
    connection.commit()
    connection.close()
    trace = loader.load(path)
    inner = [trace.strings[t] for t, d in zip(trace.ranges.text, trace.ranges.domain) if trace.strings[d] == "inner"]
    assert len(inner) == 1
    assert "linear" in inner[0]


def kernels(name: str) -> dict[str, str]:
    frame = pd.read_csv(name)
    return dict(zip(frame["Kernel Name"], frame["Op Name"]))


def test_each_domain_has_report_files_of_its_own(two: Path, dlprof: Run):
    code, _, errors = dlprof("--nsys_database=nsys.sqlite", "--reports=kernel,op_type", "--domains=inner,a/b")
    assert code == 0, errors
    assert sorted(os.listdir()) == [
        "dlprof_a_b_kernel.csv", "dlprof_a_b_op_type.csv", "dlprof_dldb.sqlite", "dlprof_inner_kernel.csv",
        "dlprof_inner_op_type.csv", "nsys.sqlite",
    ]  # fmt: skip
    inner, outer = kernels("dlprof_inner_kernel.csv"), kernels("dlprof_a_b_kernel.csv")
    assert (inner["volta_sgemm"], outer["volta_sgemm"]) == ("linear", "relu")
    assert outer["outer_kernel"] == "relu"
    assert inner["outer_kernel"].startswith("unassociated")
    assert inner["lone_kernel"].startswith("unassociated")


def test_all_domains_together_by_default(two: Path, dlprof: Run):
    assert dlprof("--nsys_database=nsys.sqlite", "--reports=kernel", "--domains=all")[0] == 0
    assert set(kernels("dlprof_kernel.csv")) == {"volta_sgemm", "outer_kernel", "lone_kernel"}
