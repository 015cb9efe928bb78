# SPDX-License-Identifier: Apache-2.0
"""A rule that speaks of every recording."""

from pyprof.rules import Rows, rule


@rule("X01", "example", rows=Rows("longest", "Longest kernels"))
def example(run):
    """Looks for nothing.

    Fires: always.
    Silent: never.
    """
    return run.finding("An example.", "Nothing.", None, (), "Nothing.")
