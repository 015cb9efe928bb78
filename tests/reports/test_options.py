# SPDX-License-Identifier: Apache-2.0
"""Options of reports, on the command line and in Python."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from pyprof.core.errors import UsageError
from pyprof.reference.reports import markdown
from pyprof.reports import every, find
from tests.build import write_capture
from tests.cli import report
from tests.reports.conftest import small
from tests.reports.test_oracle import rows


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> str:
    return str(write_capture(tmp_path_factory.mktemp("options") / "a.sqlite", small()))


def test_a_choice_on_the_command_line_changes_the_columns(path, capsys):
    assert report(["step_time", path, "--format", "json", "--categories=7"]) == 0
    seven = json.loads(capsys.readouterr().out)["Step Time Breakdown"]
    assert "Communication (ns)" not in seven[0]
    assert report(["step_time", path, "--format", "json"]) == 0
    assert "Communication (ns)" in json.loads(capsys.readouterr().out)["Step Time Breakdown"][0]


@pytest.mark.parametrize(
    ("name", "option", "sentence"),
    [
        ("kernel", "--categories=7", "report 'kernel' takes no options."),
        ("operator", "--categories=7", "report 'operator' has no option --categories; it has --by."),
        ("operator", "--by=module", "--by=module: choose from name, shapes, stack."),
        ("step_time", "--categories=", "--categories=: choose from 8, 7, phase, loader."),
    ],
)
def test_what_cannot_be_chosen_is_told_in_a_sentence(path, capsys, name, option, sentence):
    assert report([name, path, option]) == 2
    out, err = capsys.readouterr()
    assert (out, err) == ("", f"pyprof report: {sentence}\n")


def test_in_python_options_are_keywords(prof):
    assert "grid" in prof.report("kernel_summary", by="properties")
    assert "grid" not in prof.report("kernel_summary")
    with pytest.raises(UsageError, match="choose from name, operator, properties"):
        prof.report("kernel_summary", by="grid")


@pytest.mark.parametrize("one", every(), ids=lambda one: one.name)
def test_every_choice_makes_the_columns_that_it_says(one, prof, on_cpu):
    """The default is the report as it is found; every column belongs to some choice."""
    assert one == find(one.name)
    shown = set() if one.options else {column.key for column in one.columns}
    for option in one.options:
        for value in option.choices:
            chosen = one.choose(**{option.name: value})
            keys = [column.key for column in chosen.columns]
            for profile in (prof, on_cpu):
                assert list(profile.report(one.name, **{option.name: value}).columns) == keys
            shown |= set(keys)
        assert f"`--{option.name.replace('_', '-')}`: {option.text}" in markdown()
    assert shown == {column.key for column in one.all_columns}


def test_workers_are_told_apart_or_chosen(tmp_path):
    from tests.reports.test_oracle import load, random_recording

    seed = next(s for s in range(99) if len({k.process for k in random_recording(s).kernels}) == 2
                and not random_recording(s).steps)  # fmt: skip
    prof = load(random_recording(seed))
    names = [name for (name,) in prof.database.rows("select name from worker order by id")]
    for name in ("step_time", "gpu", "idle", "overlap", "memory_copies", "coverage"):
        every_one = rows(prof.report(name))
        for worker, known in enumerate(names):
            mine = [r for r in rows(prof.report(name, worker)) if r["worker"] is not None]
            assert mine == [r for r in every_one if r["worker"] == known], name
    for name in ("operator", "kernel_summary", "module"):
        calls = "occurrences" if name == "module" else "calls"
        parts = [sum(r[calls] or 0 for r in rows(prof.report(name, worker))) for worker in range(len(names))]
        assert sum(parts) == sum(r[calls] or 0 for r in rows(prof.report(name)))


def test_kinds_of_memory_and_what_is_not_known_of_a_copy(tmp_path: Path):
    import sqlite3
    from contextlib import closing

    from pyprof import profiles

    profiles.load(write_capture(tmp_path / "a.sqlite", small())).save(tmp_path / "b.sqlite")
    with closing(sqlite3.connect(tmp_path / "b.sqlite")) as connection, connection:
        first = connection.execute("select min(id) from event where kind = 1").fetchone()[0]
        connection.execute("update event set copy_from = 0, copy_to = 2 where id = ?", (first,))
        connection.execute(
            "update event set copy_from = 1, copy_to = 2, copied_bytes = null where id > ? and kind = 1",
            (first,),
        )
    found = {
        r["source"]: r
        for r in rows(profiles.load(tmp_path / "b.sqlite").report("memory_copies"))
        if r["kind"] == "HtoD"
    }
    assert set(found) == {"pageable", "pinned"}
    assert (found["pageable"]["bytes"], found["pageable"]["gb_per_s"], found["pageable"]["target"]) == (
        4096,
        163.84,
        "device",
    )
    assert (found["pinned"]["bytes"], found["pinned"]["gb_per_s"], found["pinned"]["calls"]) == (
        None,
        None,
        1,
    )
