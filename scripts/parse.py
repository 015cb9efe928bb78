#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""`parse.py` on PATH: recording -> net.dict.

Python puts the folder of a script first on its path. Every command installed beside this file would therefore
find it when it says `import parse`, which is also a well-known package (pytest-bdd and behave use it), so an
import gets that package. The plain script of an entry point could not do this.
"""

import sys

if __name__ == "__main__":
    from pyprof.commands.main import start

    sys.exit(start("parse", prog="parse.py"))

import importlib.machinery
import importlib.util
import os

_here = os.path.dirname(os.path.abspath(__file__))
_spec = importlib.machinery.PathFinder.find_spec(__name__, [p for p in sys.path if os.path.abspath(p) != _here])
if _spec is None or _spec.loader is None:
    raise ModuleNotFoundError(f"No module named {__name__!r}", name=__name__)
sys.modules[__name__] = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(sys.modules[__name__])
