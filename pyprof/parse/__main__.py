# SPDX-License-Identifier: Apache-2.0
"""python -m pyprof.parse"""

import sys

from pyprof.commands import imported

sys.exit(imported("parse.py", "pyprof.parse.parse"))
