# SPDX-License-Identifier: Apache-2.0
"""Column `caller`: the user's own line, where the innermost one belongs to a library."""

from __future__ import annotations

import ast
import sys
from pathlib import Path

import pytest

import pyprof
from pyprof.core.marker import caller
from tests import cli

HF = "/env/lib/python3.11/site-packages/transformers/pytorch_utils.py:119"


@pytest.mark.parametrize(
    ("frames", "expected"),
    [
        (("train.py:9", "model.py:3"), "model.py:3"),
        (("train.py:9", HF), "train.py:9"),
        (("train.py:9", "model.py:3", HF, HF), "model.py:3"),
        (("train.py:9", HF, "hook.py:4", HF), "hook.py:4"),  # the library calls the user back
        (("/usr/lib/python3/dist-packages/x.py:1",), None),
        (("main.py:2", "/usr/lib/python3.12/contextlib.py:81"), "main.py:2"),
        (("main.py:2", "/usr/local/lib64/python3.13t/threading.py:9"), "main.py:2"),
        (("main.py:2", "/opt/pypy/lib/pypy3.10/threading.py:9"), "main.py:2"),
        (
            ("main.py:2", r"C:\Users\me\AppData\Local\Programs\Python\Python312\Lib\threading.py:9"),
            "main.py:2",
        ),
        (("main.py:2", r"C:\env\Lib\site-packages\timm\layers.py:9"), "main.py:2"),
        (("main.py:2", "/env/lib/python3.11/site-packages/torch/nn/modules/linear.py:134"), "main.py:2"),
        (("main.py:2", "<frozen runpy>:88"), "main.py:2"),
        (("/home/user/lib/model.py:3",), "/home/user/lib/model.py:3"),
        (("/home/user/python/lib/model.py:3",), "/home/user/python/lib/model.py:3"),
        (("<stdin>:3", HF), "<stdin>:3"),
        (("In [2]:3", HF), "In [2]:3"),
        ((), None),
    ],
)
def test_the_caller_is_the_innermost_frame_outside_libraries(frames: tuple[str, ...], expected: str | None) -> None:
    assert caller(frames) == expected


@pytest.fixture
def recording(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A library's function that computes, called by the program, which computes as well."""
    folder = tmp_path / "lib" / "python3.11" / "site-packages"
    folder.mkdir(parents=True)
    (folder / "somebodys.py").write_text("import torch\ndef twice(x):\n    return torch.add(x, x)\n")
    program = "import somebodys, torch\ndef run(x):\n    y = somebodys.twice(x)\n    return torch.exp(y)\n"
    (tmp_path / "mine.py").write_text(program)
    monkeypatch.setattr(sys, "path", [str(tmp_path), str(folder), *sys.path])
    import mine
    import torch

    path = tmp_path / "net.sqlite"
    with pyprof.profile(str(path)):
        mine.run(torch.ones(2, requires_grad=True)).sum().backward()
    pyprof.shutdown()
    for name in ("mine", "somebodys"):
        del sys.modules[name]
    return path


def test_data_frames_have_both_lines(recording: Path) -> None:
    profile = pyprof.load(str(recording))
    folder = str(recording.parent)
    library = f"{folder}/lib/python3.11/site-packages/somebodys.py:3"
    for frame, names in ((profile.kernels, "op"), (profile.ops, "type")):
        of = frame.set_index(names)[["source", "caller"]]
        assert set(of.loc["add"].itertuples(index=False, name=None)) == {(library, f"{folder}/mine.py:3")}
        exp = set(of.loc[["exp"]].itertuples(index=False, name=None))
        assert exp == {(f"{folder}/mine.py:4", f"{folder}/mine.py:4")}


def test_net_dict_and_the_table_say_it_and_read_it_back(
    recording: Path, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    assert cli.parse([str(recording)]) == 0
    lines = capsys.readouterr().out
    rows = [ast.literal_eval(line) for line in lines.splitlines()]
    mine = f"{recording.parent}/mine.py"
    assert "caller" in rows[0]
    assert {row["caller"] for row in rows if row["op"][:1] == ["add"]} == {f"{mine}:3"}
    (tmp_path / "net.dict").write_text(lines)
    assert cli.prof(["--csv", "-c", "op,dir,caller", str(tmp_path / "net.dict")]) == 0
    table = capsys.readouterr().out.splitlines()
    assert f'"exp","bprop","{mine}:4"' in table
    assert f'"add","fprop","{mine}:3"' in table
    assert cli.prof(["-w", "80", "-c", "op,caller", str(tmp_path / "net.dict")]) == 0
    assert "mine.py:3 " in capsys.readouterr().out.replace("\n", " ")
