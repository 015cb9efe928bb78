# SPDX-License-Identifier: Apache-2.0
"""net.dict: one Python literal per line and kernel, the contract between `parse` and `prof`.

The first 19 keys are the original's, in its order; PyProf's follow. Unknown is None. Times are ns from the
recording's first event. Nothing is ever evaluated: a line is read with `ast.literal_eval`, once per distinct pattern
of line.

>>> row = '{"kShortName": "relu", "kDuration": 5, "dir": "fprop", "op": ["relu"]}'
>>> rows = read([row]); rows.short_names, int(rows.duration[0]), rows.sites[0].ops
(['relu'], 5, ('relu',))
"""

from __future__ import annotations

from pyprof.core.netdict.keys import KEYS, ORIGINAL_KEYS, OUR_KEYS
from pyprof.core.netdict.read import read
from pyprof.core.netdict.write import STYLES, blocks, lines

__all__ = ["KEYS", "ORIGINAL_KEYS", "OUR_KEYS", "STYLES", "blocks", "lines", "read"]
