# SPDX-License-Identifier: Apache-2.0
"""Work out figures from a profile database: iterations, aggregations, timelines, collectives, stragglers, coverage.

`build` turns a recording into a database with a first aggregation; `source` is what reports and rules read.
"""
