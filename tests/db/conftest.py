# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from pathlib import Path

import pytest

import pyprof
from tests.build import Kernel, Launch, Op, Range, Recording, call, write_capture


@pytest.fixture(scope="module")
def profile(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A profile database of three steps. Not to be changed."""
    what = Recording()
    for i in range(3):
        start = 1000 * i
        what.steps.append((i, start, start + 900))
        what.ranges.append(Range("## forward ##", start + 5, start + 500))
        what.ops.append(Op(call("aten::mm", (4, 4), (4, 4)), start + 10, start + 100))
        what.launches.append(Launch(start + 20, start + 30, i + 1))
        what.kernels.append(Kernel("sgemm", start + 40, start + 90, i + 1))
    folder = tmp_path_factory.mktemp("profile")
    path = folder / "net_dldb.sqlite"
    pyprof.load(write_capture(folder / "net.sqlite", what)).save(path)
    return path
