# SPDX-License-Identifier: Apache-2.0
"""Print docs/metrics.md."""

from pyprof.metrics.page import markdown

if __name__ == "__main__":
    print(markdown(), end="")
