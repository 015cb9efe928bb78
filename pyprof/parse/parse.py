#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Turn a recording into net.dict, one line per kernel: python parse.py net.sqlite > net.dict"""

import sys
from pathlib import Path

if __name__ == "__main__":
    # The repository's root takes the place of this file's folder.
    sys.path[0] = str(Path(__file__).resolve().parents[2])
    from pyprof.commands.main import start

    sys.exit(start("parse", prog="parse.py"))
