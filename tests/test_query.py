# SPDX-License-Identifier: Apache-2.0
"""SQL over a profile: the views say what the reports say, and a query can only read."""

from __future__ import annotations

import csv
import gzip
import io
import json
import math
import os
import signal
import sqlite3
import threading
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import NamedTuple

import pytest

from pyprof import profiles
from pyprof.commands import query
from pyprof.core.errors import PyProfError, UsageError
from pyprof.query.engine import Bounds, Queries
from pyprof.query.process import Query, QueryProcess
from pyprof.query.views import VIEWS
from tests import build, cli
from tests.waiting import HANG, until

Run = Callable[..., "Done"]
GPU = Path(__file__).parent / "traces/gpu"


class Done(NamedTuple):
    code: int
    out: str
    err: str


@pytest.fixture
def run(capfd: pytest.CaptureFixture[str]) -> Run:
    """Run `pyprof query`."""

    def run_query(*words: object) -> Done:
        code = cli.start("query", [str(word) for word in words])
        return Done(code, *capfd.readouterr())

    return run_query


@pytest.fixture(scope="module")
def recording(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("query") / "net_dldb.sqlite"
    source = path.with_name("transformer_bf16.sqlite")
    source.write_bytes(gzip.decompress((GPU / "transformer_bf16.sqlite.gz").read_bytes()))
    profiles.load(source).save(path)
    return path


@pytest.fixture(scope="module")
def prof(recording: Path) -> profiles.Profile:
    return profiles.load(recording)


def test_every_column_of_every_view_can_be_read(prof: profiles.Profile) -> None:
    assert tuple(VIEWS) == query.VIEWS
    for name, view in VIEWS.items():
        table = prof.query(f"select * from {name} limit 5")
        assert list(table.columns) == [field.name for field in view.fields]
        assert len({field.name for field in view.fields}) == len(view.fields)
        assert all(field.text.endswith(".") for field in view.fields)


def test_kernels_are_those_of_the_reports(prof: profiles.Profile) -> None:
    """Time, work, use of tensor cores and steps, by name; and operators, by op_id."""
    ours = prof.query(
        "select name, count(*), sum(duration_ns), 1.0 * sum(flops) / sum(bytes), 1e9 * sum(flops) / sum(duration_ns), "
        "100.0 * sum(roofline_ns) / sum(duration_ns) from kernels where step is not null group by name"
    )
    report = prof.report("kernel_summary")
    theirs = report[["name", "calls", "total_ns", "intensity", "flops_per_s", "efficiency"]]
    rows = {row[0]: row[1:] for row in ours.itertuples(index=False)}
    assert set(rows) == set(theirs["name"])
    for name, calls, total, *rates in theirs.itertuples(index=False):
        assert rows[name][:2] == (calls, total)
        for own, other in zip(rows[name][2:4], rates):
            assert own == pytest.approx(other, rel=1e-9, nan_ok=True)
        # The report leaves out the efficiency of kernels whose work another one carries: their roofline is 0.
        efficiency = rows[name][4]
        assert efficiency == pytest.approx(0.0 if math.isnan(rates[2]) and efficiency == 0 else rates[2], nan_ok=True)
    places = prof.report("detail").set_index("op_id")
    for op_id, calls, gpu, line, phase in prof.query(
        "select op_id, calls, gpu_ns, source_line, phase from operators where kernels"
    ).itertuples(index=False):
        assert (calls, gpu) == (places.loc[op_id, "calls"], places.loc[op_id, "gpu"])
        assert line == (places.loc[op_id, "stack"] or "").rpartition("\n")[2]
        assert phase in ("forward", "backward", "optimizer", None)


def test_steps_add_up(prof: profiles.Profile) -> None:
    rows = prof.query("select length_ns, tc_ns + kernel_ns + memory_ns + dataloader_ns + coalesce(io_ns, 0) + cpu_ns "
                      "+ other_ns from steps")  # fmt: skip
    assert len(rows) == 2
    assert rows.iloc[:, 0].tolist() == rows.iloc[:, 1].tolist()
    kernels = prof.query("select step, count(*) as kernels from kernels group by 1 order by 1")
    raw = prof.database.rows(
        "select i.number, (select count(*) from event where kind = 0 and id >= first_event and id < last_event) "
        "from iteration i where iteration_set = (select iteration_set from aggregation where id = 1) order by 1"
    )
    assert list(kernels.itertuples(index=False, name=None)) == raw


def test_a_line_is_the_last_of_its_stack(prof: profiles.Profile) -> None:
    for line, stack in prof.query("select source_line, call_stack from operators").itertuples(index=False):
        assert line == (stack.rpartition("\n")[2] if stack else None)


REFUSED = {
    "delete from op": "can only read",
    "delete from kernels": "can only read",
    "insert into meta values ('a', 'b')": "can only read",
    "create table x (a)": "can only read",
    "create temp table x (a)": "can only read",
    "drop view kernels": "can only read",
    "attach 'other.sqlite' as other": "can only read",
    "pragma journal_mode = wal": "can only read",
    "select load_extension('x')": "can only read",
    "select writefile('x', 'y')": "no such function",
    "vacuum into 'other.sqlite'": "wrong",
    "select 1; select 2": "one statement",
    "select 1; delete from op": "one statement",
    "": "is empty",
    "-- nothing": "is empty",
    "selec": "syntax error",
    "select * from kernel": "Did you mean kernels?",
    "select * from elsewhere": "Views: kernels, copies, cpu_events,",
    "select duration from kernels": "Did you mean duration_ns?",
    "select ?": "wrong",
    "select '\ud800'": "UTF-8",
}


@pytest.mark.parametrize("text", REFUSED)
def test_what_is_no_reading_is_refused(text: str, recording: Path, tmp_path: Path, monkeypatch) -> None:
    before = recording.read_bytes()
    monkeypatch.chdir(tmp_path)
    with Queries(recording, "net", 60) as queries:
        with pytest.raises(UsageError) as error:
            queries.answer(text)
        assert REFUSED[text] in str(error.value)
        assert "\n" not in str(error.value)
        assert queries.answer("select count(*) from kernels").rows[0][0] > 0  # it still works
    assert recording.read_bytes() == before
    assert not list(tmp_path.iterdir())


def test_a_query_without_end_is_stopped(run: Run, recording: Path) -> None:
    done = run(
        recording, "with recursive t(a) as (select 1 union all select a + 1 from t) select count(*) from t",
        "--timeout", "0.2",
    )  # fmt: skip
    assert done.code == 1
    assert done.err.endswith("0.2 s and was stopped. Select fewer rows, or raise the limit with --timeout.\n")


# One call of a function is one instruction of SQLite, which looks at the clock between two.
_LONG = {
    "instr": "select instr(zeroblob(100000000), zeroblob(50000000) || x'01')",
    "trim": "select trim(replace(hex(zeroblob(500000)), '0', '1'), hex(zeroblob(500000)) || '1')",
    "replace": "select length(replace(hex(zeroblob(50000000)), hex(zeroblob(40000000)) || '1', ''))",
}


@pytest.mark.parametrize("text", _LONG.values(), ids=_LONG)
def test_a_query_of_one_long_instruction_is_stopped(text: str, recording: Path) -> None:
    with closing(QueryProcess(0.2)) as queries:
        with pytest.raises(PyProfError, match=r"more than 0\.2 s and was stopped\. Select fewer rows\.$"):
            queries.answer(Query(recording, "net", text))
        (row,) = queries.answer(Query(recording, "net", "select count(*) > 0 from kernels")).rows
        assert row == (1,)  # the next one is answered


def test_the_process_of_the_command_runs_no_query(run: Run, recording: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing could end a long instruction there."""
    monkeypatch.setattr(Queries, "__init__", None)
    assert run(recording, "select 6 * 7 as x", "--format", "csv").out == "x\n42\n"


def _ticks(pid: int) -> int:
    """Return the CPU time of a process, in hundredths of a second."""
    return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[11])


@pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="this system has no /proc")
def test_ctrl_c_ends_a_query_of_one_long_instruction(recording: Path) -> None:
    with closing(QueryProcess(HANG)) as queries:
        queries.answer(Query(recording, "net", "select 1"))
        assert queries._child is not None
        _, process = queries._child
        before = _ticks(process.pid)

        def interrupt() -> None:
            until(lambda: _ticks(process.pid) > before + 10)
            os.kill(os.getpid(), signal.SIGINT)

        threading.Thread(target=interrupt).start()
        with pytest.raises(KeyboardInterrupt):
            queries.answer(Query(recording, "net", _LONG["instr"]))
        assert process.returncode == -signal.SIGKILL


def test_the_process_of_a_query_ends_though_nobody_waits_for_it(recording: Path) -> None:
    queries = QueryProcess(0.2)
    queries.answer(Query(recording, "net", "select 1"))
    assert queries._child is not None
    pipe, process = queries._child
    pipe.send((Query(recording, "net", _LONG["instr"]), 0.2))
    pipe.close()
    assert process.wait(HANG) == -signal.SIGALRM


def test_rows_are_read_one_by_one_as_far_as_they_are_wanted(recording: Path) -> None:
    """Of 40 MB of text in each of 500 rows, the process may hold 512 MB."""
    text = "select hex(zeroblob(20000000)) from kernels limit 500"
    with closing(QueryProcess(HANG)) as queries:
        answer = queries.answer(Query(recording, "net", text, Bounds(characters=5_000, text=1_000)))
        with pytest.raises(PyProfError, match="more memory than there is; select fewer rows or columns"):
            queries.answer(Query(recording, "net", f"select {', '.join(['hex(zeroblob(60000000))'] * 9)}"))
    # Each is cut to 1,000 characters and its length: the fifth is the first with which they have more than 5,000.
    assert (len(answer.rows), answer.more) == (5, True)
    assert answer.rows[0][0].endswith("000... (40,000,000 characters)")


def test_rows_that_are_too_much_for_memory_are_an_error(run: Run, recording: Path, monkeypatch) -> None:
    monkeypatch.setattr(query, "_MOST_TEXT", 1 << 20)
    done = run(recording, "select hex(zeroblob(1000)) from ranges, ranges", "--format", "csv")
    assert (done.code, done.out) == (1, "")
    assert done.err.endswith("the rows have more than 1 MB of text; select fewer rows or columns.\n")


def test_formats_and_limits(run: Run, recording: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    select = "select short_name as \"a,b\", duration_ns, mfu_percent, null as n, x'00ff' as x from kernels order by 2"
    with Queries(recording, "net", 60) as queries:
        every = queries.answer(select)
        page = queries.answer(select, Bounds(3, 2000))
        assert not page.rows
        page = queries.answer(select, Bounds(3, 5))
    assert page.rows == every.rows[5:8]
    assert page.more
    assert every.rows[0][4] == "<2 bytes>"
    done = run(recording, select, "--format", "csv")
    rows = list(csv.reader(io.StringIO(done.out)))
    assert rows[0] == every.columns
    assert [row[1] for row in rows[1:]] == [str(row[1]) for row in every.rows]
    monkeypatch.setattr("sys.stdin", io.StringIO(select))
    done = run(recording, "-", "--format", "json", "--limit", "2")
    assert [row["duration_ns"] for row in json.loads(done.out)["Query"]] == [row[1] for row in every.rows[:2]]
    assert "more than these 2 rows" in done.err
    done = run(recording, "select 9e999 as a, -9e999 as b, null as c", "--format", "json")
    assert json.loads(done.out, parse_constant=None)["Query"] == [{"a": "inf", "b": "-inf", "c": None}]
    done = run(recording, "select 1 as a, 2 as a", "--format", "csv")
    assert done.out == "a,a\n1,2\n"
    done = run(recording, "select id from ranges", "--limit", "1000")
    assert sum(line.strip().isdecimal() for line in done.out.splitlines()) == 1000


def test_a_recording_without_a_gpu_and_hostile_names(run: Run, tmp_path: Path) -> None:
    name = "aten::mm\x1b[31m\n<b>"
    path = build.write_capture(tmp_path / "cpu.sqlite", build.recording(f"aten::mm, seq = 1\n    > 10 {name!r}"))
    profile = profiles.load(path)
    for view in VIEWS:
        profile.query(f"select * from {view}")
    done = run(path, "select name from kernels")
    assert done.code == 0
    assert "\x1b" not in done.out


def test_a_database_with_a_view_of_its_own_is_no_profile(run: Run, recording: Path, tmp_path: Path) -> None:
    path = tmp_path / "other_dldb.sqlite"
    path.write_bytes(recording.read_bytes())
    with sqlite3.connect(path) as database:
        database.execute("create view kernels as select 1 as id")
    database.close()
    done = run(path, "select * from kernels")
    assert done.code == 1
    assert "holds code" in done.err
