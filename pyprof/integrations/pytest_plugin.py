# SPDX-License-Identifier: Apache-2.0
"""Plugin for pytest: a test records a block of its code and compares it with a saved recording.

def test_training_step(pyprof_profile, assert_no_regression):
    with pyprof_profile() as recording:
        for _ in range(30):
            step()
            recording.step()
    assert_no_regression(recording.profile, "training", fail_on=["step_time>5%"])

Recordings are kept as STORAGE/SET/NAME.sqlite. `--pyprof-save SET` keeps those of a run, `--pyprof-autosave` under the
next number, `--pyprof-compare SET` compares with a set; the default is the one saved last. docs/ci.md has an example.
"""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from pyprof.profiles import Profile

_STORAGE = ".pyprof"
_SAFE = re.compile(r"[\w.-]+", re.ASCII)
_LINES: pytest.StashKey[list[str]] = pytest.StashKey()
_TARGET: pytest.StashKey[str | None] = pytest.StashKey()


class Recording:
    """A recorded block. `step()` ends a step; `profile` is what was recorded, once the block has ended."""

    def __init__(self, path: Path):
        self.path = path
        self._step: Callable[[], object] = lambda: None
        self._profile: Profile | None = None

    def step(self) -> None:
        """End a step. The steps of a block are the iterations that are compared."""
        self._step()

    @property
    def profile(self) -> Profile:
        """Return what was recorded. Raises PyProfError if the block has not ended."""
        import pyprof

        if self._profile is None:
            self._profile = pyprof.load(self.path)
        return self._profile


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the options."""
    group = parser.getgroup("pyprof", "recordings of PyProf")
    group.addoption("--pyprof-save", metavar="SET", help="save the recordings as a set with this name")
    group.addoption("--pyprof-autosave", action="store_true", help="save the recordings as the next numbered set")
    group.addoption("--pyprof-compare", metavar="SET", help="compare with this set; default: the one saved last")
    group.addoption(
        "--pyprof-storage",
        metavar="FOLDER",
        help=f"folder of the sets; default: {_STORAGE} in the root folder",
    )


def pytest_configure(config: pytest.Config) -> None:
    """Choose the set that this run saves. Raises UsageError."""
    name = config.getoption("--pyprof-save")
    for text in (name, config.getoption("--pyprof-compare")):
        if text is not None and not _is_name(text):
            raise pytest.UsageError(f"pyprof: set {text!r}: use letters, digits, dots, hyphens and underscores.")
    if name is None and config.getoption("--pyprof-autosave"):
        numbers = [int(path.name) for path in _sets(config) if path.name.isascii() and path.name.isdecimal()]
        name = f"{max(numbers, default=0) + 1:04}"
    config.stash[_TARGET] = name
    config.stash[_LINES] = []


def _is_name(text: str) -> bool:
    return bool(_SAFE.fullmatch(text)) and text.strip(".") != ""


def _storage(config: pytest.Config) -> Path:
    return config.rootpath / (config.getoption("--pyprof-storage") or _STORAGE)


def _sets(config: pytest.Config) -> list[Path]:
    """Return the folders of the saved sets, the one saved last at the end."""
    storage = _storage(config)
    folders = [path for path in storage.iterdir() if path.is_dir()] if storage.is_dir() else []
    return sorted(folders, key=lambda path: (path.stat().st_mtime_ns, path.name))


@pytest.fixture
def pyprof_profile(tmp_path: Path) -> Callable[..., Any]:
    """Return a context manager that records a block of the test. Its arguments are those of `pyprof.profile`."""
    count = 0

    @contextmanager
    def record(**options: Any) -> Iterator[Recording]:
        nonlocal count
        import pyprof

        recording = Recording(tmp_path / f"pyprof-{count}.sqlite")
        count += 1
        with pyprof.profile(str(recording.path), **options) as session:
            recording._step = session.step
            yield recording

    return record


@pytest.fixture
def assert_no_regression(request: pytest.FixtureRequest) -> Callable[[Profile, str, Sequence[str]], None]:
    """Return a function that compares a profile with the saved one of a name, saves it if this run saves, and raises
    AssertionError if a condition fails. Without a saved one the test is skipped, unless this run saves."""
    config = request.config

    def check(profile: Profile, name: str, fail_on: Sequence[str] = ("step_time>5%",)) -> None:
        from pyprof.gate.conditions import parse
        from pyprof.gate.outputs import describe, text
        from pyprof.gate.verdict import FAIL, compare
        from pyprof.profiles import Profile

        if not _is_name(name):
            raise ValueError(f"name {name!r}: use letters, digits, dots, hyphens and underscores.")
        conditions = [parse(condition) for condition in fail_on]
        saved = _baseline(config, name)
        target = config.stash[_TARGET]
        if saved is not None:
            # Opened before this run may replace it.
            base = Profile.open(saved)
            verdict = compare([base.source()], [profile.source()], conditions)
            base.database.close()
            lines = config.stash[_LINES]
            lines.append(f"{name}, compared with {saved.parent.name}: {text(verdict)}".rstrip())
        if target is not None:
            _save(profile, _storage(config) / target / f"{name}.sqlite")
        if saved is None:
            if target is None:
                pytest.skip(f"pyprof: no recording of {name} to compare with; save one with --pyprof-save SET")
            return
        failed = [describe(outcome) for outcome in verdict.outcomes if outcome.status == FAIL]
        if failed:
            raise AssertionError("\n".join([f"{name} is slower than in {saved.parent.name}:", *failed]))

    return check


def _baseline(config: pytest.Config, name: str) -> Path | None:
    """Return the recording to compare with; None without one. Raises UsageError if a set was asked for."""
    name_of_set = config.getoption("--pyprof-compare")
    if name_of_set is not None:
        path: Path = _storage(config) / name_of_set / f"{name}.sqlite"
        if not path.is_file():
            raise pytest.UsageError(f"pyprof: {path} does not exist; save it with --pyprof-save {name_of_set}.")
        return path
    target = config.stash[_TARGET]
    paths = [folder / f"{name}.sqlite" for folder in _sets(config) if folder.name != target]
    return next((path for path in reversed(paths) if path.is_file()), None)


def _save(profile: Profile, target: Path) -> None:
    """Copy a recording into a set, completely or not at all; one in several files as a profile database."""
    from pyprof.core import atomic_file

    target.parent.mkdir(parents=True, exist_ok=True)
    if profile.path.is_file():
        with atomic_file.named(str(target)) as name:
            shutil.copyfile(profile.path, name)
    else:
        profile.save(target)
    os.utime(target.parent)  # the set saved last


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    """Print the comparisons."""
    lines = config.stash.get(_LINES, [])
    target = config.stash.get(_TARGET, None)
    if lines or target:
        terminalreporter.section("pyprof")
    for line in lines:
        terminalreporter.write_line(line)
    if target:
        terminalreporter.write_line(f"recordings saved in {_storage(config) / target}")
