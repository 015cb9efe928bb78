# SPDX-License-Identifier: Apache-2.0
"""python -m pyprof.prof"""

import sys

from pyprof.prof.prof import main

sys.exit(main())
