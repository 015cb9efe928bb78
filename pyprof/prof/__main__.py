# SPDX-License-Identifier: Apache-2.0
"""python -m pyprof.prof"""

import sys

from pyprof.commands import imported

sys.exit(imported("prof.py", "pyprof.prof.prof"))
