# SPDX-License-Identifier: Apache-2.0
"""The profile database: one SQLite file with everything a recording says, and what was aggregated from it.

`facts` turns a recording into tables, `store` writes and opens files, `steps` finds iterations, `aggregate` adds them
up. The tables are described in schema.sql. Facts are written once; any number of aggregations stand beside them.
"""
