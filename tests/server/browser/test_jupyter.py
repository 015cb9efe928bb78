# SPDX-License-Identifier: Apache-2.0
"""The page behind a real Jupyter server: an empty folder, the first recording, a re-aggregation, at the proxied URL."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from pyprof import profiles
from tests.jupyter import TOKEN, jupyter, write_profile
from tests.server.browser.conftest import Page


@pytest.mark.long
def test_the_tile_shows_the_first_recording(chromium: Any, tmp_path: Path) -> None:
    notebooks = tmp_path / "notebooks"
    notebooks.mkdir()
    with jupyter(notebooks, tmp_path / "jupyter") as server:
        context = chromium.new_context(viewport={"width": 1280, "height": 800})
        tab = context.new_page()
        try:
            tab.goto(f"{server.url}api/status?token={TOKEN}")  # Jupyter's cookie
            page = Page(tab, f"{server.url}pyprof")
            tab.goto(f"{server.url}pyprof/newest")
            tab.wait_for_selector("[data-trouble=empty]", timeout=60_000)
            assert str(notebooks) in tab.inner_text("[data-trouble=empty]")
            assert "%%pyprof -o net.sqlite" in tab.inner_text("[data-trouble=empty]")
            page.wrong.clear()  # the console names each answer that is an error
            prof = profiles.load(write_profile(notebooks / "net_dldb.sqlite"))
            tab.wait_for_selector("[data-headline]", timeout=60_000)
            page.wrong.clear()
            page.go("kernels")
            first = prof.report("kernel_summary").iloc[0]
            assert page.column("kernels", "total_ns")[0] == f"{first['total_ns']:,}"
            tab.goto(f"{server.url}pyprof/newest")
            page.settled()
            assert tab.url == f"{server.url}pyprof/#/overview?run=net_dldb.sqlite"
            assert not page.wrong
        finally:
            context.close()
