# SPDX-License-Identifier: Apache-2.0
"""The profile database: one SQLite file with everything a recording says, and what was aggregated from it.

Write the facts (`write`), open and validate files (`files`, `access`, `validate`), convert those of older schemas
(`upgrade`), and sum over ranges of ids (`blocks`). The tables are described in schema.sql. Facts are written once; any
number of aggregations stand beside them. What is worked out from the facts is in `pyprof.analysis`.
"""
