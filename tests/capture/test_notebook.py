# SPDX-License-Identifier: Apache-2.0
"""Cells of a notebook that a Jupyter kernel runs, and of IPython in a terminal: `In [2]:3`, with their text."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from .conftest import Recorded

ROOT = Path(__file__).parents[2]
CELLS = [
    "import torch, pyprof\npyprof.start('net.sqlite')",
    "def run(x):\n    # an exponential\n    return torch.exp(x)",
    "# once\ny = run(torch.ones(1))",
    "z = torch.tanh(y); _ = z.item()",
    "_ = pyprof.stop()",
]


def expected(recorded: Recorded) -> None:
    """Outermost frames, of IPython itself, stand before those of the cells."""
    lines = {call.name: call.user_lines for call in recorded.calls}
    assert lines["torch.exp"][-2:] == ["In [3]:2", "In [2]:3"]
    assert lines["torch.tanh"][-1] == lines["Tensor.item"][-1] == "In [4]:1"
    texts = dict(recorded.query("select path, text from PYPROF_SOURCE join PYPROF_SOURCE_TEXT using (sha256)"))
    assert {name: texts[name].rstrip("\n") for name in ("In [2]", "In [3]", "In [4]")} == {
        f"In [{number}]": CELLS[number - 1] for number in (2, 3, 4)
    }


@pytest.mark.long
def test_a_jupyter_kernel(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import nbclient
    import nbformat

    for name in ("JUPYTER_RUNTIME_DIR", "JUPYTER_CONFIG_DIR", "JUPYTER_DATA_DIR", "IPYTHONDIR"):
        monkeypatch.setenv(name, str(tmp_path / name))
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")]))
    notebook = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(cell) for cell in CELLS])
    interrupt = signal.getsignal(signal.SIGINT)
    try:
        nbclient.NotebookClient(
            notebook, timeout=600, kernel_name="python3", resources={"metadata": {"path": str(tmp_path)}}
        ).execute()
    finally:
        signal.signal(signal.SIGINT, interrupt)  # the client leaves Python's own
    expected(Recorded(tmp_path / "net.sqlite"))


@pytest.mark.long
def test_ipython_in_a_terminal(tmp_path: Path) -> None:
    program = (
        "from IPython.core.interactiveshell import InteractiveShell\n"
        "shell = InteractiveShell.instance()\n"
        f"for cell in {CELLS!r}:\n    shell.run_cell(cell, store_history=True).raise_error()\n"
    )
    environment = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join([str(ROOT), *sys.path]),
        "IPYTHONDIR": str(tmp_path),
    }
    done = subprocess.run(
        [sys.executable, "-c", program],
        cwd=tmp_path,
        env=environment,
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
    expected(Recorded(tmp_path / "net.sqlite"))
