# SPDX-License-Identifier: Apache-2.0
"""python -m pyprof"""

import sys

from pyprof.cli import main

sys.exit(main())
