# SPDX-License-Identifier: Apache-2.0
"""A recording as the tests read it: rows of the capture file, decoded."""

from __future__ import annotations

import os
import shutil
import sqlite3
import subprocess
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import pytest

import pyprof
from pyprof.capture.collectors.cupti import pool
from pyprof.core.marker import CallMarker, decode, with_stack
from pyprof.core.model import Tensor

from .stand_in import Fake

# Files of PyProf itself. The folder around may have any name, of a package too, and the environment may lie in it.
OURS = os.path.join(os.path.dirname(os.path.abspath(pyprof.__file__)), "")


class CallRow(NamedTuple):
    """A call of the file."""

    number: int
    start: int
    end: int
    tid: int
    marker: CallMarker

    @property
    def name(self) -> str:
        return f"{self.marker.call.mod}.{self.marker.call.op}"

    @property
    def shapes(self) -> list[tuple[int, ...]]:
        return [arg.value.shape for arg in self.marker.call.args if isinstance(arg.value, Tensor)]

    @property
    def user_lines(self) -> list[str]:
        return [frame for frame in self.marker.trace if "site-packages" not in frame]


class OpRow(NamedTuple):
    """An operator of the file."""

    start: int
    end: int
    tid: int
    name: str
    scope: int
    text: str
    seq: int | None
    forward: int | None

    @property
    def args(self) -> list[Any]:
        marker = decode(self.text)
        assert isinstance(marker, CallMarker)
        return [arg.value for arg in marker.call.args]


@dataclass
class Recorded:
    """What a capture file holds."""

    path: Path

    def query(self, sql: str) -> list[Any]:
        connection = sqlite3.connect(f"file:{self.path}?mode=ro", uri=True)
        try:
            return connection.execute(sql).fetchall()
        finally:
            connection.close()

    @property
    def calls(self) -> list[CallRow]:
        rows = self.query(
            """select uint64Value, start, end, globalTid, value
               from NVTX_EVENTS join StringIds on textId = id
               where domainId = 1 and eventType = 59
               order by uint64Value"""
        )
        out, stacks = [], self.table("PYPROF_CALL_STACK")
        for number, start, end, tid, text in rows:
            marker = decode(with_stack(text, stacks))
            assert isinstance(marker, CallMarker), text
            out.append(CallRow(number, start, end, tid, marker))
        return out

    @property
    def names(self) -> list[str]:
        return [call.name for call in self.calls]

    def call(self, name: str) -> CallRow:
        """The only call of that name."""
        (found,) = [call for call in self.calls if call.name == name]
        return found

    @property
    def ranges(self) -> list[tuple[str, int]]:
        return [
            (text, kind)
            for text, kind in self.query(
                "select text, eventType from NVTX_EVENTS where domainId = 0 order by start, end desc"
            )
        ]

    @property
    def ops(self) -> list[OpRow]:
        return [
            OpRow(*row)
            for row in self.query(
                """select start, end, globalTid, name.value, scope, text.value, seq, forwardGlobalTid
                   from PYPROF_OP
                   join StringIds name on nameId = name.id
                   join StringIds text on textId = text.id
                   order by start, end desc"""
            )
        ]

    def table(self, name: str) -> dict[str, Any]:
        return dict(self.query(f"select * from {name}"))


@pytest.fixture(autouse=True)
def _shutdown() -> Iterator[None]:
    """After each test torch is as it was."""
    yield
    pyprof.shutdown()


@pytest.fixture
def record(tmp_path: Path) -> Callable[..., Recorded]:
    """Run a function in a window and read the file."""

    def run(body: Callable[[], object], **options: Any) -> Recorded:
        path = tmp_path / "net.sqlite"
        with pyprof.profile(str(path), **options):
            body()
        return Recorded(path)

    return run


@pytest.fixture
def torch_seed() -> None:
    import torch

    torch.manual_seed(0)


@pytest.fixture(scope="session")
def fake_path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The stand-in for libcupti, compiled."""
    compiler = shutil.which("gcc") or shutil.which("cc")
    if compiler is None:
        pytest.skip("the stand-in for libcupti: no C compiler")
    out = tmp_path_factory.mktemp("cupti") / "libcupti_stand_in.so"
    source = Path(__file__).with_name("cupti_fake.c")
    subprocess.run([compiler, "-shared", "-fPIC", "-o", out, source, "-lpthread"], check=True)
    return out


@pytest.fixture
def fake(fake_path: Path) -> Fake:
    """libcupti, in a process that has not used it yet."""
    if pool.missing():
        pytest.skip("CUPTI's records: this torch has no buffers for them")
    return Fake(fake_path)


@pytest.fixture(autouse=True)
def _no_garbage(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """A collection that comes by chance is no range of a test about others."""
    if "test_interruptions" not in request.node.nodeid:
        from pyprof.capture.instrument import interruptions

        monkeypatch.setattr(interruptions, "_SHORTEST", 1 << 62)
