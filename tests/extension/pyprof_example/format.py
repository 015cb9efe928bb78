# SPDX-License-Identifier: Apache-2.0
"""Recordings as lines of text: `EXAMPLE`, then the grammar of tests/build.py."""

from pathlib import Path

from pyprof.parse import loader
from pyprof.parse.formats import FORMATS


@FORMATS.register("example")
class Lines:
    """A text whose first line is EXAMPLE."""

    @staticmethod
    def sniff(path):
        with path.open("rb") as file:
            return file.read(8) == b"EXAMPLE\n"

    @staticmethod
    def load(path):
        from tests.build import recording, write_nsys

        database = Path(f"{path}.sqlite")
        write_nsys(database, recording(path.read_text().partition("\n")[2]))
        return loader.load(database)
