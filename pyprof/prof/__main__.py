# SPDX-License-Identifier: Apache-2.0
"""python -m pyprof.prof"""

import sys

from pyprof.commands.main import start

sys.exit(start("prof", prog="prof.py"))
