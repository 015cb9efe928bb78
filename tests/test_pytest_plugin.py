# SPDX-License-Identifier: Apache-2.0
"""The plugin for pytest: a test records its code and compares it with a saved recording."""

from __future__ import annotations

import re
import subprocess
import sys
import textwrap
from importlib.metadata import entry_points
from pathlib import Path

import pytest

import pyprof
from pyprof.gate import verdict
from pyprof.gate.conditions import parse
from tests import cli
from tests.test_gate import steps, write

ROOT = Path(__file__).resolve().parent.parent
pytest_plugins = ["pytester"]
PLUGIN = "pyprof.integrations.pytest_plugin"
# An installation registers it; a second time would be an error.
INSTALLED = any(point.value == PLUGIN for point in entry_points(group="pytest11"))
TRAINING = """
    import torch
    from torch import nn

    def test_step(pyprof_profile, assert_no_regression):
        model = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 4))
        with pyprof_profile() as recording:
            for _ in range(12):
                model(torch.ones(2, 8)).sum().backward()
                recording.step()
        assert len(recording.profile.steps) == 12
        assert_no_regression(recording.profile, "training", fail_on=["step_time>100000%", "op:linear>9s"])
"""
# Recordings of known lengths in the place of measured ones: no test depends on the speed of a machine.
WRITTEN = """
    import pyprof
    from pathlib import Path
    from tests.test_gate import MM, steps, write

    def test_step(assert_no_regression, tmp_path):
        factor = float(Path({here!r}, "factor").read_text())
        lengths = [{{**one, MM: int(factor * one[MM])}} for one in steps(12, int(100 * factor))]
        path = write(tmp_path / "run.json", lengths)
        assert_no_regression(pyprof.load(path), "training", ["step_time>5%", "op:*>1%"])
"""


@pytest.fixture(scope="module")
def loaded(tmp_path_factory: pytest.TempPathFactory) -> None:
    """Import all that a comparison needs: pytester forgets what its runs import, and numpy is imported only once."""
    path = write(tmp_path_factory.mktemp("loaded") / "run.json", steps(12))
    profile = pyprof.load(path)
    verdict.compare([profile.source()], [profile.source()], [parse("op:*>1%")])
    profile.save(path.with_suffix(".sqlite"))


@pytest.fixture
def run(pytester: pytest.Pytester, loaded: None):
    pytester.makeini(f"[pytest]\npythonpath = {ROOT}")

    def start(*words: str) -> pytest.RunResult:
        plugin = [] if INSTALLED else ["-p", PLUGIN]
        return pytester.runpytest_inprocess(*plugin, "-p", "no:cacheprovider", *words)

    return start


def written(pytester: pytest.Pytester, factor: float) -> None:
    """Make a test whose operator mm takes so many times as long as in the base."""
    (pytester.path / "factor").write_text(str(factor))
    pytester.makepyfile(test_written=WRITTEN.format(here=str(pytester.path)))


def test_a_block_is_recorded_saved_and_compared(tmp_path, forks):
    """In processes of their own: what is recorded has to be torch as it is outside of tests."""
    (tmp_path / "test_training.py").write_text(textwrap.dedent(TRAINING))
    program = "import sys, pytest\nsys.exit(pytest.main(sys.argv[1:]))\n"
    plugin = [] if INSTALLED else ["-p", PLUGIN]
    for words, line in (
        ("--pyprof-save", r"recordings saved in .*\.pyprof/main\n"),
        (
            "--pyprof-compare",
            r"training, compared with main: (pass|cannot tell)",
        ),  # on a busy machine few steps are steady
    ):
        arguments = [*plugin, "-p", "no:cacheprovider", "-c", "/dev/null", "--rootdir=.", words, "main", "."]
        code, done = forks.run(tmp_path, program, arguments=arguments)
        assert code == 0, done.stdout
        assert "1 passed" in done.stdout
        assert re.search(line, done.stdout)
    assert (tmp_path / ".pyprof/main/training.sqlite").is_file()


def test_without_a_set_it_is_skipped(pytester, run):
    written(pytester, 1)
    first = run("-rs")
    first.assert_outcomes(skipped=1)
    first.stdout.fnmatch_lines(["*no recording of training to compare with; save one with --pyprof-save SET*"])


def test_a_regression_fails_the_test_and_names_the_operator(pytester, run):
    written(pytester, 1)
    run("--pyprof-save", "main").assert_outcomes(passed=1)
    written(pytester, 1.1)
    slower = run()
    slower.assert_outcomes(failed=1)
    slower.stdout.fnmatch_lines(
        [
            "*AssertionError: training is slower than in main:",
            "*op:[*]>1%: fail",
            "*op:mm fprop: 200 us -> 2?? us, +*",
        ]
    )
    written(pytester, 0.9)
    run().assert_outcomes(passed=1)


def test_the_set_saved_last_is_the_base(pytester, run):
    written(pytester, 1)
    run("--pyprof-autosave").assert_outcomes(passed=1)
    written(pytester, 1.1)
    run("--pyprof-autosave").assert_outcomes(failed=1)  # saved too
    assert sorted(path.name for path in (pytester.path / ".pyprof").iterdir()) == ["0001", "0002"]
    run().assert_outcomes(passed=1)
    run("--pyprof-compare", "0001").assert_outcomes(failed=1)
    written(pytester, 1.2)
    run("--pyprof-save", "0002", "--pyprof-compare", "0002").assert_outcomes(failed=1)  # what it replaces
    run("--pyprof-storage", "elsewhere").assert_outcomes(skipped=1)


def test_a_recording_in_several_files_is_saved_as_a_database(pytester, run):
    pytester.makepyfile("""
        import pyprof
        from tests.test_gate import steps, write

        def test_step(assert_no_regression, tmp_path):
            (tmp_path / "run").mkdir()
            write(tmp_path / "run" / "rank_0.json", steps(12))
            assert_no_regression(pyprof.load(tmp_path / "run"), "training", ["op:*>1%"])
    """)
    run("--pyprof-save", "main").assert_outcomes(passed=1)
    run("--pyprof-compare", "main").assert_outcomes(passed=1)


@pytest.mark.parametrize("words", [("--pyprof-save", "../up"), ("--pyprof-compare", ".."), ("--pyprof-save", "a/b")])
def test_a_set_is_no_path(words, pytester, run):
    written(pytester, 1)
    result = run(*words)
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    result.stderr.fnmatch_lines(["*use letters, digits, dots, hyphens and underscores."])


def test_a_missing_set_and_a_wrong_name_are_told(pytester, run):
    written(pytester, 1)
    missing = run("--pyprof-compare", "never")
    missing.stdout.fnmatch_lines(["*training.sqlite does not exist; save it with --pyprof-save never.*"])
    assert missing.ret != 0
    pytester.makepyfile(test_written=WRITTEN.format(here=str(pytester.path)).replace('"training"', '"../x"'))
    run("--pyprof-save", "main").stdout.fnmatch_lines(["*name '../x': use letters*"])
    assert not list(pytester.path.glob("**/x.sqlite"))


def test_the_plugin_imports_neither_torch_nor_pandas():
    code = f"import sys, {PLUGIN}; sys.exit(bool({{'torch', 'pandas', 'numpy'}} & sys.modules.keys()))"
    assert subprocess.run([sys.executable, "-c", code]).returncode == 0


def test_commands_read_saved_recordings(pytester, run, capsys):
    written(pytester, 1)
    run("--pyprof-save", "main")
    path = str(pytester.path / ".pyprof/main/training.sqlite")
    capsys.readouterr()
    assert cli.main(["diff", path, path, "--fail-on", "op:*>1%"]) == 0
