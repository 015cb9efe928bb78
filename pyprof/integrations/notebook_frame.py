# SPDX-License-Identifier: Apache-2.0
"""The page of a profile in a frame of a notebook: `prof.show()`.

The frame has the page of `pyprof page` in its address, a `data:` URL. It needs no server, so that it opens wherever the
notebook does: behind a hub, on another machine, in VS Code, and when a trusted notebook is opened again. A page at such
an address has an origin of its own and cannot read the notebook; the sandbox allows it scripts and downloads.
"""

from __future__ import annotations

import base64
from collections.abc import Callable
from pathlib import Path

from pyprof.core import scratch
from pyprof.core.errors import UsageError
from pyprof.integrations.notebook_progress import in_notebook


class Frame:
    """A page in a frame, `height` pixels high."""

    def __init__(self, name: str, page: bytes, height: int):
        self.name, self.page, self.height = name, page, height

    def __repr__(self) -> str:
        return f"<page of {self.name}, {len(self.page) / 1e6:.1f} MB>"

    def _repr_html_(self) -> str:
        text = base64.b64encode(self.page).decode()
        return (
            f'<iframe src="data:text/html;base64,{text}" title="PyProf" width="100%" height="{self.height}" '
            'sandbox="allow-scripts allow-downloads" allow="clipboard-write" style="border:1px solid #8885"></iframe>'
        )


def show(name: str, write: Callable[[str], None], height: int) -> Frame:
    """Return the page of a profile as a frame. `write`: writes the page into a file. Raises UsageError outside of a
    notebook."""
    if not in_notebook():
        raise UsageError(f"show() is for notebooks; in a terminal run: pyprof view {name}")
    if height < 1:
        raise UsageError(f"show(height={height}): expected a number of pixels.")
    with scratch.Folder() as folder:
        path = Path(folder, "page.html")
        write(str(path))
        return Frame(Path(name).name, path.read_bytes(), height)
