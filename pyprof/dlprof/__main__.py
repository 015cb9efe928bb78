# SPDX-License-Identifier: Apache-2.0
"""python -m pyprof.dlprof"""

import sys

from pyprof.dlprof.command import main

sys.exit(main())
