# SPDX-License-Identifier: Apache-2.0
"""The example of `pyprof view --demo`: it has something for each view, and says that it was generated."""

from __future__ import annotations

import gzip
import subprocess
import sys

import pytest

from pyprof import profiles
from pyprof.commands import main
from pyprof.server import demo
from tests.conftest import ROOT
from tests.server.conftest import serving
from tests.waiting import HANG


@pytest.fixture(scope="module")
def shown():
    return profiles.load(demo.RECORDING)


def test_the_script_writes_it(tmp_path):
    made = tmp_path / "demo.gz"
    words = [sys.executable, str(ROOT / "scripts/make_demo.py"), str(made)]
    subprocess.run(words, check=True, capture_output=True, timeout=HANG)
    assert gzip.decompress(made.read_bytes()) == gzip.decompress(demo.RECORDING.read_bytes())
    assert demo.RECORDING.stat().st_size < 300_000


def test_each_view_has_something(shown):
    steps = shown.report("step_time", categories="phase")
    assert list(steps["step"]) == list(range(10, 16))
    for key in ("forward_ns", "backward_ns", "optimizer_ns", "dataloader_ns"):
        assert (steps[key] > 0).all(), key
    detail = shown.report("detail")
    assert set(detail["direction"]) >= {"fprop", "bprop"}
    assert detail["using_tc"].any()
    assert not detail["using_tc"].all()
    assert detail["module"].notna().any()
    assert detail["stack"].notna().all()
    assert len(shown.report("alive"))
    assert len(shown.report("memory_copies"))
    findings = shown.report("expert_systems")
    assert sum(findings["outcome"] == "found") >= 2


def test_the_page_says_so(made):
    with serving(demo.RECORDING) as client:
        while (answer := client.http.get("/api/profile")).status_code == 503:
            pass
        assert answer.json()["notice"] == demo.NOTICE
        assert "generated" in demo.NOTICE
        assert "generated" in answer.json()["name"]
    with serving(made) as client:
        assert client.json("/api/profile")["notice"] is None


@pytest.mark.parametrize("words", [["--demo", "net.sqlite"], []])
def test_a_file_or_the_example(words, capsys):
    assert main.main(["view", *words]) == 2
    assert "--demo" in capsys.readouterr().err


def test_the_terminal_says_so(monkeypatch, capsys):
    served = []
    monkeypatch.setattr("pyprof.server.serve.serve", lambda name, arguments: served.append(arguments.file))
    assert main.main(["view", "--demo"]) == 0
    assert served == [[str(demo.RECORDING)]]
    assert capsys.readouterr().err == f"pyprof view: {demo.NOTICE}\n"
