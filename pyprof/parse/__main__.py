# SPDX-License-Identifier: Apache-2.0
"""python -m pyprof.parse"""

import sys

from pyprof.commands.main import start

sys.exit(start("parse", prog="parse.py"))
