# SPDX-License-Identifier: Apache-2.0
"""The profile database: one SQLite file with the facts of a recording and the aggregations made from it.

The parts: write the facts (`write`), open and validate files (`files`, `access`, `validate`). schema.sql
describes the tables. Facts are written once; any number of aggregations may be added.
`pyprof.facts` computes figures from the facts and converts databases of older schemas (`upgrade`).
"""
