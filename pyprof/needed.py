# SPDX-License-Identifier: Apache-2.0
"""Imported first by commands: ends them with a sentence where installed packages exclude each other.

pyarrow from 26 on needs numpy 2 but does not declare it, so pip installs it beside numpy 1.26.
"""

from __future__ import annotations

import sys

try:
    import pyarrow  # noqa: F401
except ImportError as error:
    if "numpy" not in str(error).lower():
        raise
    sys.exit(
        f"pyprof: {error}. Install a newer numpy (pip install 'numpy>=2') or an older pyarrow ('pyarrow<26')."
    )
