# SPDX-License-Identifier: Apache-2.0
"""What `example::triple` costs."""

import pyprof


@pyprof.cost("example::triple")
def triple(x: pyprof.Tensor) -> pyprof.Cost:
    """Three operations per element. Source: the example."""
    return pyprof.Cost(flops=3 * x.numel, bytes=x.bytes)
