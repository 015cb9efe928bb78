# SPDX-License-Identifier: Apache-2.0
"""The source of the page: its types are those of the API, and nothing of it is HTML made of texts."""

from __future__ import annotations

import importlib
import json
import os
import subprocess
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

FRONTEND = Path(__file__).resolve().parents[3] / "frontend"


def test_types_are_those_of_the_api(request: pytest.FixtureRequest):
    from pyprof.server.app import build

    nobody: Any = SimpleNamespace()
    said = build(nobody).openapi()
    said["info"]["version"] = "0"  # of PyProf: not of the API
    text = json.dumps(said, indent=1, sort_keys=True) + "\n"
    file = FRONTEND / "openapi.json"
    if request.config.getoption("--regold"):
        file.write_text(text, encoding="utf-8")
    assert file.read_text(encoding="utf-8") == text, "pytest --regold writes it anew"


def test_no_html_is_made_of_texts():
    for file in (FRONTEND / "src").rglob("*"):
        if file.suffix in (".svelte", ".ts"):
            text = file.read_text(encoding="utf-8")
            assert "{@html" not in text, file
            assert "innerHTML" not in text, file


@pytest.mark.parametrize(
    "script",
    [pytest.param("check", marks=pytest.mark.long), pytest.param("lint", marks=pytest.mark.long), "test"],
)
def test_the_page_passes_its_own_checks(script: str, monkeypatch: pytest.MonkeyPatch):
    """Types, formatting and ESLint's rules, unit tests."""
    if not (FRONTEND / "node_modules/.package-lock.json").is_file():
        pytest.skip("npm's packages are not installed: make page")
    monkeypatch.syspath_prepend(FRONTEND)
    backend = importlib.import_module("backend")
    tool = backend.npm()
    run = subprocess.run(
        [*tool.command, "run", script], cwd=FRONTEND, env=os.environ | {"PATH": tool.path},
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert run.returncode == 0, run.stdout[-2000:]
