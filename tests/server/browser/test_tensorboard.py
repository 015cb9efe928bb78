# SPDX-License-Identifier: Apache-2.0
"""The tab of a real TensorBoard: the page in its frame, and a log directory as torch.profiler writes it."""

from __future__ import annotations

import gzip
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from pyprof import profiles
from tests.server.browser.conftest import plain

GPU = Path(__file__).resolve().parents[2] / "traces/gpu"


@pytest.fixture(scope="module")
def logdir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A database of PyProf's, and a trace where tensorboard_trace_handler puts it."""
    out = tmp_path_factory.mktemp("logs")
    recording = out.parent / "transformer_bf16.sqlite"
    recording.write_bytes(gzip.decompress((GPU / "transformer_bf16.sqlite.gz").read_bytes()))
    profiles.load(recording).save(out / "net_dldb.sqlite")
    (out / "run").mkdir()
    trace = gzip.decompress((GPU / "products.pt.trace.json.gz").read_bytes())
    (out / "run" / "host_1.1690000000000.pt.trace.json").write_bytes(trace)
    return out


@pytest.fixture(scope="module")
def tensorboard(logdir: Path) -> Iterator[str]:
    """The address of a TensorBoard."""
    process = subprocess.Popen(
        [sys.executable, "-m", "tensorboard.main", "--logdir", logdir, "--port", "0", "--load_fast=false"],
        stderr=subprocess.PIPE, stdout=subprocess.DEVNULL, text=True, env={**os.environ, "PYTHONUNBUFFERED": "1"},
    )  # fmt: skip
    assert process.stderr is not None
    try:
        for line in process.stderr:
            if match := re.search(r"http://localhost:\d+", line):
                yield match[0]
                break
        else:
            pytest.fail("TensorBoard did not start")
    finally:
        process.terminate()
        process.communicate()


@pytest.mark.long
def test_the_tab_shows_the_page(chromium: Any, tensorboard: str, logdir: Path) -> None:
    """The database at once, the trace once it is read; each with the figures of its file."""
    tab = chromium.new_page(viewport={"width": 1400, "height": 900})
    errors: list[str] = []
    tab.on("pageerror", lambda error: errors.append(str(error)))
    try:
        tab.goto(f"{tensorboard}/#pyprof")
        frame = tab.frame_locator("iframe")
        headline = frame.locator("[data-headline]")
        headline.filter(has_text="A step takes").wait_for(timeout=60_000)
        prof = profiles.load(logdir / "net_dldb.sqlite")
        text = plain(headline.inner_text())
        assert "The GPU waits for kernel launches for 15.9 ms of 18.1 ms a step, 87.7 %" in text
        kernels = frame.locator("[data-table=kernels] tbody tr")
        page = next(one for one in tab.frames if "/data/plugin/pyprof/page/" in one.url)
        page.evaluate("location.hash = '#/kernels'")
        kernels.first.wait_for(timeout=60_000)
        longest = prof.report("kernel_summary").iloc[0]
        cell = frame.locator("[data-table=kernels] tbody td[data-key=total_ns]").first
        tips = cell.evaluate("cell => cell.dataset.tip ?? cell.querySelector('[data-tip]').dataset.tip")
        assert f"{longest['total_ns']:,} ns" in tips
        page.evaluate("location.hash = '#/overview?run=run'")
        frame.locator("text=products").or_(headline.filter(has_text="takes")).first.wait_for(timeout=60_000)
        assert tab.evaluate("document.title") == "TensorBoard"
        assert not errors
    finally:
        tab.close()
