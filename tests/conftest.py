# SPDX-License-Identifier: Apache-2.0
"""What all tests share: recordings of others, golden files, long tests.

`PYPROF_TEST_DATA` names a folder of recordings that are not ours to publish (default: ../shared/data beside the
repository). Tests that need it take the fixture `data`; without the folder they are one skip, named at the end.
"""

from __future__ import annotations

import gc
import os
import signal
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from typing import Any

import hypothesis
import pytest

from tests import databases, leftovers
from tests.forks import Forks

collect_ignore = ["extension"]  # importing its modules would register what they bring for every test

ROOT = Path(__file__).resolve().parent.parent
LONG = os.environ.get("PYPROF_LONG", "") not in ("", "0")

# Modules stay: until all are collected there is nothing to free, and later collections need not look at them.
gc.disable()

# The test processes share the cores: threads of torch would only wait for each other. Before anything imports torch.
os.environ.setdefault("OMP_NUM_THREADS", "1")
# No test needs a GPU, and those that say what happens without one must hold on a machine that has some.
os.environ["CUDA_VISIBLE_DEVICES"] = ""
# torch reads this at its first profile, whichever test that is.
os.environ.setdefault("KINETO_LOG_LEVEL", "99")

# Ctrl-C as a terminal has it: in the background of a script, the tests and what they start would ignore it.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

leftovers.track_connections()

# Time is no property of the code under test: no deadline, no complaint about a slow machine.
hypothesis.settings.register_profile(
    "pyprof",
    deadline=None,
    max_examples=60 if LONG else 15,
    suppress_health_check=[hypothesis.HealthCheck.too_slow],
)
hypothesis.settings.load_profile("pyprof")


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--regold", action="store_true", help="rewrite golden files from what the code says now")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    if not LONG:
        for item in items:
            if item.get_closest_marker("long"):
                item.add_marker(pytest.mark.skip(reason="long: runs with PYPROF_LONG=1 (make test-all)"))


def pytest_collection_finish() -> None:
    gc.collect()
    gc.freeze()
    gc.enable()


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Name each reason to skip once, with the number of tests it skipped."""
    skipped = terminalreporter.stats.get("skipped", [])
    reasons = Counter(report.longrepr[2].removeprefix("Skipped: ") for report in skipped)
    for reason, count in reasons.items():
        terminalreporter.write_line(f"skipped {count}: {reason}")


@pytest.fixture(autouse=True)
def _nothing_is_left() -> Iterator[None]:
    """A test leaves the process as it found it. What it did leave is put back, so that it fails alone."""
    before = leftovers.state()
    yield
    left = leftovers.restore(before)
    assert not left, "; ".join(left)


@pytest.fixture(autouse=True)
def _threads_of_pytest_go_on(monkeypatch: pytest.MonkeyPatch) -> None:
    """A script that a test runs in this process ends its own threads, not those of the tests."""
    others = set(threading.enumerate())

    def join() -> None:
        for thread in threading.enumerate():
            if not thread.daemon and thread not in others:
                thread.join()

    monkeypatch.setattr(threading, "_shutdown", join)


@pytest.fixture(scope="session")
def root() -> Path:
    """The folder of the repository."""
    return ROOT


@pytest.fixture(scope="session")
def data() -> Path:
    """The folder of recordings of others."""
    folder = Path(os.environ.get("PYPROF_TEST_DATA") or ROOT.parent / "shared" / "data")
    if not folder.is_dir():
        pytest.skip("no recordings of others: set PYPROF_TEST_DATA to their folder")
    return folder


@pytest.fixture(scope="session")
def recorded(data: Path) -> Callable[[str], Any]:
    """Open a recording of others: read once by the code as it is, from then on a database.

    Only for tests of what stands on a recording: those of reading it call `load`."""
    from pyprof import profiles

    @cache
    def opened(name: str) -> Any:
        return profiles.load(databases.of(data / name))

    return opened


@pytest.fixture(scope="session")
def forks(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Forks]:
    """Programs that are forked from one process that has torch."""
    server = Forks(tmp_path_factory.mktemp("logs"))
    yield server
    server.close()


@pytest.fixture(scope="session")
def compiler_forks(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Forks]:
    """Forks of a process that has torch's compiler, too: checkpoints and optimizers import it, which takes seconds."""
    server = Forks(tmp_path_factory.mktemp("logs"), more="import torch._dynamo")
    yield server
    server.close()


@pytest.fixture
def golden(request: pytest.FixtureRequest) -> Callable[[str, str], None]:
    """Compare a text with tests/golden/NAME; `pytest --regold` writes that file instead, to be reviewed as a diff."""

    def check(name: str, text: str) -> None:
        path = ROOT / "tests" / "golden" / name
        if request.config.getoption("--regold"):
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, encoding="utf-8")
        assert path.exists(), f"{path} is missing: run pytest --regold and review it"
        assert text == path.read_text(encoding="utf-8")

    return check
