# SPDX-License-Identifier: Apache-2.0
"""`io=True`: accesses to files as ranges, and `open` and the modules as they were afterwards."""

from __future__ import annotations

import builtins
import io
import json
import os
import pathlib
import pickle
import shutil
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest
import torch

import pyprof
from pyprof.parse import loader

from .conftest import Recorded

Record = Callable[..., Recorded]


class Row(NamedTuple):
    name: str
    file: str | None
    bytes: int | None
    start: int
    end: int
    tid: int


def rows(recorded: Recorded) -> list[Row]:
    return [
        Row(*row)
        for row in recorded.query(
            """select name.value, file.value, bytes, start, end, globalTid
               from PYPROF_IO
               join StringIds name on nameId = name.id
               left join StringIds file on fileId = file.id
               order by start"""
        )
    ]


def brief(recorded: Recorded) -> list[tuple[str, str | None, int | None]]:
    return [row[:3] for row in rows(recorded)]


def test_accesses_have_a_function_a_file_and_bytes_where_known(record: Record, tmp_path: Path) -> None:
    tensor, path = torch.arange(5), tmp_path / "net.pt"

    def body() -> None:
        torch.empty(1)
        with open(path, "wb") as file:
            file.write(b"12345")
        torch.save(tensor, path)
        torch.load(path)
        np.save(tmp_path / "a.npy", np.zeros(3))
        np.fromfile(tmp_path / "a.npy", np.uint8)
        path.read_bytes()
        (tmp_path / "b.txt").write_text("four")
        (tmp_path / "b.txt").write_bytes(b"three")
        (tmp_path / "b.txt").read_text()
        number = os.open(path, os.O_RDONLY)
        os.read(number, 7)
        os.close(number)
        with open(tmp_path / "c.json", "w") as file:
            json.dump([1], file)

    size = {}
    recorded = record(body, io=True)
    for name in ("net.pt", "a.npy"):
        size[name] = (tmp_path / name).stat().st_size
    assert brief(recorded) == [
        ("open", "net.pt", None),
        ("torch.save", "net.pt", size["net.pt"]),
        ("torch.load", "net.pt", None),
        ("numpy.save", "a.npy", size["a.npy"]),
        ("numpy.fromfile", "a.npy", size["a.npy"]),
        ("pathlib.Path.read_bytes", "net.pt", size["net.pt"]),
        ("pathlib.Path.write_text", "b.txt", 4),
        ("pathlib.Path.write_bytes", "b.txt", 5),
        ("pathlib.Path.read_text", "b.txt", None),
        ("os.read", None, 7),
        ("open", "c.json", None),
        ("json.dump", "c.json", None),
    ]
    assert recorded.table("PYPROF_META")["io.accesses"] == "12"


def test_they_are_the_io_of_the_trace(record: Record, tmp_path: Path) -> None:
    path = tmp_path / "net.pt"

    def body() -> None:
        torch.save(torch.zeros(4), path)
        torch.load(path)

    recorded = record(body, io=True)
    trace = loader.load(recorded.path)
    found = rows(recorded)
    assert [trace.strings[code] for code in trace.io.name] == ["torch.save", "torch.load"]
    lengths = trace.io.end - trace.io.start
    assert lengths.tolist() == [row.end - row.start for row in found]
    assert (trace.io.start[1:] >= trace.io.end[:-1]).all()  # they are disjoint: their sum is the share
    assert [trace.threads[index].tid for index in trace.io.thread] == [threading.get_native_id()] * 2


def test_accesses_of_two_threads_and_of_one_inside_another(record: Record, tmp_path: Path) -> None:
    """The outermost access counts: a program waits for one thing at a time."""

    def save(name: str) -> None:
        torch.save(torch.zeros(4), tmp_path / name)  # opens the file itself

    def body() -> None:
        save("a")
        thread = threading.Thread(target=save, args=("b",))
        thread.start()
        thread.join()

    found = rows(record(body, io=True))
    assert [row.file for row in found] == ["a", "b"]
    assert found[0].tid != found[1].tid


def test_what_is_no_file_is_no_access(record: Record) -> None:
    def body() -> None:
        torch.empty(1)
        torch.save(torch.zeros(4), io.BytesIO())
        reading, writing = os.pipe()
        os.write(writing, b"x")
        os.read(reading, 1)
        os.close(reading)
        os.close(writing)

    assert rows(record(body, io=True)) == []


def test_an_access_that_fails_raises_as_ever_and_is_recorded(record: Record, tmp_path: Path) -> None:
    def body() -> None:
        torch.empty(1)
        with pytest.raises(FileNotFoundError) as raised:
            open(tmp_path / "none")  # noqa: SIM115
        assert raised.value.filename == str(tmp_path / "none")
        with pytest.raises(TypeError):
            open()  # type: ignore[call-overload]  # noqa: SIM115

    assert brief(record(body, io=True)) == [("open", "none", None)]


def test_a_file_is_what_it_is_without_the_option(tmp_path: Path) -> None:
    path = tmp_path / "x"
    path.write_text("one\ntwo\n")

    def look() -> list[Any]:
        with open(path) as text, open(path, "rb") as binary, open(path, "rb", buffering=0) as raw:
            return [
                type(text), type(text.buffer), type(text.buffer.raw), type(binary), type(raw), text.readlines(),
                binary.read(), raw.read(), io.open is open, open.__name__, open.__module__, open.__qualname__,
                *(pickle.dumps(open, protocol) for protocol in range(pickle.HIGHEST_PROTOCOL + 1)),
                pickle._dumps(open),  # type: ignore[attr-defined]
                pickle.loads(pickle.dumps(open)) is open,
            ]  # fmt: skip

    without = look()
    with pyprof.profile(str(tmp_path / "net.sqlite"), io=True):
        within = look()
    assert within == without


def test_a_class_that_holds_open_gets_no_self(tmp_path: Path) -> None:
    path = tmp_path / "x"
    path.write_text("one")
    with pyprof.profile(str(tmp_path / "net.sqlite"), io=True):

        class Reader:
            opener = open

        with Reader().opener(path) as file:
            assert file.read() == "one"
    with Reader().opener(path) as file:  # the window is over, what was kept of it still opens files
        assert file.read() == "one"


def test_functions_keep_their_identity_in_the_window(tmp_path: Path) -> None:
    held = {torch.load: 1, os.read: 2, np.load: 3, pickle.load: 4, pathlib.Path.read_bytes: 5}
    with pyprof.profile(str(tmp_path / "net.sqlite"), io=True):
        now = [torch.load, os.read, np.load, pickle.load, pathlib.Path.read_bytes]
    assert [held[function] for function in now] == [1, 2, 3, 4, 5]


def test_a_module_is_pickled_by_name_as_those_do_that_pickle_functions_by_value(tmp_path: Path) -> None:
    with pyprof.profile(str(tmp_path / "net.sqlite"), io=True):
        assert [pickle.loads(pickle.dumps(module)) for module in (os, np, pickle)] == [os, np, pickle]


MODULES = (
    builtins,
    io,
    sys.modules[open.__module__],
    os,
    shutil,
    json,
    pickle,
    torch,
    torch.jit,
    np,
    pathlib.Path,
)


@pytest.mark.parametrize("fails", [False, True])
def test_nothing_stays(tmp_path: Path, fails: bool) -> None:
    before = [(dict(vars(module)), type(module)) for module in MODULES]
    try:
        with pyprof.profile(str(tmp_path / "net.sqlite"), io=True):
            assert open is not before[0][0]["open"]
            if fails:
                raise KeyError
    except KeyError:
        pass
    assert [(dict(vars(module)), type(module)) for module in MODULES] == before
    pyprof.shutdown()


def test_a_program_that_replaces_open_keeps_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "x"
    path.write_text("one")
    original = open
    with pyprof.profile(str(tmp_path / "net.sqlite"), io=True):
        inside = builtins.open

        def mine(*args: Any, **kwargs: Any) -> Any:
            return inside(*args, **kwargs)

        monkeypatch.setattr(builtins, "open", mine)
    assert builtins.open is mine
    with open(path) as file:
        assert file.read() == "one"
    monkeypatch.undo()
    builtins.open = original


def test_accesses_above_the_bound_are_counted(record: Record, tmp_path: Path) -> None:
    path = tmp_path / "x"
    path.write_text("one")

    def body() -> None:
        torch.empty(1)
        for _ in range(9):
            with open(path):
                pass

    recorded = record(body, io=True, max_events=4)
    assert len(rows(recorded)) == 4
    assert recorded.table("PYPROF_LOST")["file accesses after the first 4"] == 9 - 4


def test_the_next_batch_is_a_range_without_the_option(record: Record) -> None:
    loader: Any = torch.utils.data.DataLoader(torch.arange(4.0), batch_size=2)
    names = [name for name, _ in record(lambda: list(loader)).ranges]
    assert sum("enumerate(DataLoader)#" in name for name in names) >= 2


@pytest.mark.skipif(sys.platform == "win32", reason="no fork")
def test_a_forked_child_opens_files_as_ever(tmp_path: Path) -> None:
    with pyprof.profile(str(tmp_path / "net.sqlite"), io=True, sample="cpu", memory=True, api_backtrace=0):
        child = os.fork()
        if not child:
            clean = type(open).__name__ == "builtin_function_or_method" and "item" not in vars(torch.Tensor)
            quiet = [thread.name for thread in threading.enumerate()] == ["MainThread"]
            os._exit(0 if clean and quiet and float(torch.ones(1)) == 1 else 1)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    pyprof.shutdown()
