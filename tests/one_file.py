# SPDX-License-Identifier: Apache-2.0
"""What a file of `pyprof page` contains, as a browser would inflate it."""

from __future__ import annotations

import base64
import gzip
import json
import re
from pathlib import Path
from typing import Any


def script(text: str, name: str) -> bytes:
    """The bytes of a script that is data."""
    packed = re.search(rf'<script type="application/gzip" id="{name}">([A-Za-z0-9+/=]*)</script>', text)
    assert packed is not None
    return gzip.decompress(base64.b64decode(packed[1]))


def contents(path: Path) -> dict[str, Any]:
    """The data of a file."""
    return dict(json.loads(script(path.read_text(encoding="utf-8"), "data")))
