# SPDX-License-Identifier: Apache-2.0
"""Two browsers on one profile while iterations are added up, the server is killed and started again, and the file goes:
nothing is lost, and what is shown is what the address says."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tests.server.browser.conftest import Open, Page
from tests.server.conftest import STEPS

Start = Callable[..., subprocess.Popen[str]]


@pytest.fixture
def start() -> Iterator[Start]:
    """Starts viewers as processes of their own: of a file, on a port (0: one that is free); `url` is where."""
    running = []

    def start_(path: Path, port: int = 0) -> Any:
        words = [
            sys.executable,
            "-m",
            "pyprof",
            "view",
            "--no-token",
            "--no-browser",
            "-p",
            str(port),
            str(path),
        ]
        process = subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
        running.append(process)
        assert process.stdout is not None
        return SimpleNamespace(process=process, url=process.stdout.readline().strip().rstrip("/"))

    yield start_
    for process in running:
        process.kill()
        process.communicate()


def calls(page: Page) -> int:
    """What the page shows: all calls, of the iterations that its header names."""
    return sum(int(text.replace(",", "")) for text in page.column("types", "calls"))


@pytest.mark.long
@pytest.mark.statement("IT23")
def test_two_browsers_a_killed_server_and_a_file_that_goes(opened: Open, copied: Callable[[], Path], start: Any):
    file = copied()
    server = start(file)
    port = int(server.url.rpartition(":")[2])
    one, two = opened(server), opened(server)
    for page in (one, two):
        page.go("op-types")
    whole = calls(one)
    assert calls(two) == whole > 0

    # One adds up two of the iterations; the other is told, and its numbers stay those of its address.
    one.go("iterations")
    one.find("[data-field=start]").fill("1")
    one.find("[data-field=stop]").fill("2")
    one.find("section button:text-is('Reaggregate')").click()
    one.find("dialog[open] button:text-is('Reaggregate')").click()
    one.find("[data-job=done]").wait_for()
    assert calls(two) == whole
    one.find("[data-job] button:text-is('Refresh')").click()
    one.go("op-types", agg="2")
    assert calls(one) * STEPS == whole * 2
    two.tab.reload()
    two.settled()
    assert calls(two) == whole

    # The server dies: a view that needs it says so, and shows no numbers.
    os.kill(server.process.pid, signal.SIGKILL)
    server.process.wait()
    for page in (one, two):
        page.tab.evaluate("location.hash = location.hash.replace('by=type', 'by=group')")
        page.tab.wait_for_selector("main [data-note=error], main [data-trouble]")
        assert not page.find("main table tbody td").count()
        page.wrong.clear()  # requests that nobody answered

    # Started again, it has what was added up, and the addresses mean what they meant.
    server = start(file, port)
    one.go("op-types", agg="2")
    two.go("op-types")
    assert calls(one) * STEPS == whole * 2
    assert calls(two) == whole
    for page in (one, two):
        page.wrong.clear()

    # The file goes: no numbers of a file that nobody can look at again.
    file.unlink()
    for page in (one, two):
        page.tab.reload()
        page.tab.wait_for_selector("[data-trouble=vanished]")
        assert not page.find("main table").count()
        page.wrong.clear()  # the server's 410
