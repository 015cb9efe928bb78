# SPDX-License-Identifier: Apache-2.0
"""python -m pyprof"""

import sys

from pyprof.commands.main import main

sys.exit(main())
