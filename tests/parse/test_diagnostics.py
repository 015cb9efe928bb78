# SPDX-License-Identifier: Apache-2.0
"""What Nsight Systems reported of its own recording is said: in `info`, and where nothing was found."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from pyprof.core.errors import FormatError
from pyprof.parse import loader
from tests.build import recording, write_nsys

DRIVER = "Installed CUDA driver version (13.1) is not supported by this build"


def write(path: Path, text: str) -> Path:
    write_nsys(path, recording(text))
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute(
            "create table DIAGNOSTIC_EVENT (timestamp, timestampType, source, severity, text, globalPid)"
        )
        rows = [
            (1, "Process was launched"),
            (2, DRIVER),
            (3, "CUPTI_ERROR_NOT_INITIALIZED"),
            (2, DRIVER),
            (4, "more"),
        ]
        connection.executemany("insert into DIAGNOSTIC_EVENT values (0, 1, 1, ?, ?, 0)", rows)
    return path


def test_warnings_and_errors_are_facts_of_the_recording(tmp_path: Path) -> None:
    trace = loader.load(write(tmp_path / "net.sqlite", "forward\n    > 3 kernel"))
    assert trace.meta["nsys.diagnostics"] == f"{DRIVER} | CUPTI_ERROR_NOT_INITIALIZED"


def test_they_take_the_place_of_the_advice_where_nothing_was_recorded(tmp_path: Path) -> None:
    with pytest.raises(FormatError, match=r"no kernels found, 1 NVTX ranges\. Nsight Systems reported: Installed CUDA"):
        loader.load(write(tmp_path / "net.sqlite", "forward"))
