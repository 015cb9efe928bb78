# SPDX-License-Identifier: Apache-2.0
"""python -m pyprof.parse"""

import sys

from pyprof.parse.parse import main

sys.exit(main())
