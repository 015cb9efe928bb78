# SPDX-License-Identifier: Apache-2.0
"""A recording holds the source files that its stacks name, so that a reader sees the line without the machine."""

from __future__ import annotations

import linecache
import os
import sys
from collections.abc import Callable
from hashlib import sha256
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest
import torch

from pyprof.capture.instrument import notebook_cells
from pyprof.capture.output import sources
from pyprof.parse import loader
from pyprof.parse.rows import rows

from .conftest import OURS, Recorded

Record = Callable[..., Recorded]
PROGRAM = "import torch\n\n\ndef go(x):\n    return torch.tanh(x)  # é\n"


def load(path: Path, text: str = PROGRAM) -> Any:
    """A module of the program, from a file of its own."""
    path.write_text(text, encoding="utf-8")
    module = ModuleType(path.stem)
    exec(compile(text, str(path), "exec"), module.__dict__)
    return module


def stored(recorded: Recorded) -> dict[str, str]:
    return dict(recorded.query("select path, text from PYPROF_SOURCE join PYPROF_SOURCE_TEXT using (sha256)"))


def test_the_line_of_every_frame_is_in_the_recording(tmp_path: Path, record: Record) -> None:
    net, x = torch.nn.Linear(2, 2), torch.ones(2, 2)
    module = load(tmp_path / "model.py")
    recorded = record(lambda: module.go(net(x)).sum().backward())
    texts = stored(recorded)
    frames = {frame for site in rows(loader.load(recorded.path)).sites for frame in site.trace}
    assert {frame.rpartition(":")[0] for frame in frames} == set(texts)
    assert texts[str(tmp_path / "model.py")] == PROGRAM
    for frame in frames:
        path, _, line = frame.rpartition(":")
        assert texts[path].splitlines()[int(line) - 1].strip()
    assert recorded.table("PYPROF_META")["sources"] == str(len(texts))


def test_a_text_is_stored_once_with_its_hash(tmp_path: Path, record: Record) -> None:
    first, second = load(tmp_path / "one.py"), load(tmp_path / "two.py")
    recorded = record(lambda: (first.go(torch.ones(1)), second.go(torch.ones(1))))
    texts = stored(recorded)
    assert texts[str(tmp_path / "one.py")] == texts[str(tmp_path / "two.py")] == PROGRAM
    hashes = recorded.query("select sha256, text from PYPROF_SOURCE_TEXT")
    assert len(hashes) == len(set(texts.values()))
    assert all(digest == sha256(text.encode()).hexdigest() for digest, text in hashes)


def test_files_of_torch_and_pyprof_are_left_out(record: Record) -> None:
    recorded = record(lambda: torch.nn.Linear(2, 2)(torch.ones(2, 2)))
    raw = {frame for call in recorded.calls for frame in call.marker.trace}
    packages = os.path.join(os.path.dirname(torch.__file__), ""), OURS
    assert any(frame.startswith(packages) for frame in raw)  # the stacks have them
    assert not any(path.startswith(packages) for path in stored(recorded))


@pytest.mark.parametrize(
    ("file", "expected"),
    [
        ("<ipython-input-7-abc>", "In [7]"),
        ("/tmp/ipykernel_31/934561069.py", "In [4]"),
        ("/tmp/ipykernel_31/1.py", "/tmp/ipykernel_31/1.py"),  # nobody knows its number
        ("<stdin>", "<stdin>"),
    ],
)
def test_a_cell_of_a_notebook_is_named_by_its_number(
    file: str, expected: str, record: Record, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With what IPython has where a cell runs; a real kernel: test_notebook.py."""
    shell = SimpleNamespace(compile=SimpleNamespace(_filename_map={"/tmp/ipykernel_31/934561069.py": 4}))
    monkeypatch.setitem(sys.modules, "IPython", SimpleNamespace(get_ipython=lambda: shell))
    text = "import torch\n\ntorch.tanh(torch.ones(1))\n"
    monkeypatch.setitem(linecache.cache, file, (len(text), None, text.splitlines(True), file))
    recorded = record(lambda: exec(compile(text, file, "exec"), {}))
    assert recorded.call("torch.tanh").user_lines[-1] == f"{expected}:3"
    assert stored(recorded)[expected] == text


@pytest.mark.parametrize(
    "shell", [None, 3, SimpleNamespace(), SimpleNamespace(compile=SimpleNamespace(_filename_map=3))]
)
def test_a_shell_of_another_kind_names_no_cells(shell: object, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "IPython", SimpleNamespace(get_ipython=lambda: shell))
    assert notebook_cells.name("/tmp/ipykernel_31/934561069.py") == "/tmp/ipykernel_31/934561069.py"


@pytest.mark.parametrize(
    ("path", "text"),
    [("gone.py", None), ("binary.py", b"\xff\xfe\x00"), ("empty.py", b"")],
    ids=["gone", "binary", "empty"],
)
def test_what_cannot_be_read_is_not_there(path: str, text: bytes | None, tmp_path: Path) -> None:
    if text is not None:
        (tmp_path / path).write_bytes(text)
    assert sources.read([str(tmp_path / path)]) == ([], 0)


def test_sizes_are_bounded_and_what_is_left_out_is_counted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sources, "LARGEST", 100)
    monkeypatch.setattr(sources, "MOST", 150)
    for name, size in (("a.py", 101), ("b.py", 90), ("c.py", 70), ("d.py", 60)):
        (tmp_path / name).write_text("#" * (size - 1) + "\n")
    found, left_out = sources.read(str(tmp_path / name) for name in ("a.py", "b.py", "c.py", "d.py"))
    assert [Path(source.path).name for source in found] == ["b.py", "d.py"]
    assert left_out == 2


def test_equal_code_in_two_files_keeps_its_file(tmp_path: Path, record: Record) -> None:
    """Python takes code objects for equal that differ in nothing but their file."""
    first, second = load(tmp_path / "one.py"), load(tmp_path / "two.py")
    assert first.go.__code__ == second.go.__code__
    recorded = record(lambda: (first.go(torch.ones(1)), second.go(torch.ones(1))))
    lines = [call.marker.trace[-1] for call in recorded.calls if call.name == "torch.tanh"]
    assert lines == [f"{tmp_path}/one.py:5", f"{tmp_path}/two.py:5"]
