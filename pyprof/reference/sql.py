# SPDX-License-Identifier: Apache-2.0
"""docs/sql.md, from the views of queries."""

from __future__ import annotations

from pyprof.query.views import VIEWS
from pyprof.reference import page

_HEAD = """# SQL

`pyprof query FILE 'select ...'` runs one SELECT of SQLite over a recording or a profile database, as text, CSV, JSON,
Markdown or Parquet; `prof.query("select ...")` returns a data frame. This page is generated: `python -m
pyprof.reference sql`.

```console
$ pyprof query transformer.sqlite 'select module, sum(duration_ns) as total_ns,
    sum(flops) / sum(duration_ns) / 1e3 as tflop_s
  from kernels where tensor_cores = "used" group by module order by 2 desc limit 5'
module         total_ns  tflop_s
────────────────────────────────
head            169,283    608.9
blocks.3.down    62,113    414.9
blocks.2.down    62,049    415.3
blocks.1.down    61,856    416.6
blocks.0.down    61,697    417.7
```

The views below are stable: their columns keep names and meanings, and new ones are added at the end. The tables beneath
them may change with any version. Times are integers of ns from the first event of the recording; NULL is unknown,
never 0. Columns that two views share by name join them: `op_id`, `worker`, `step`. `call_id` of an API call is an `id`
of calls.

The file is opened for reading alone. Everything but one SELECT is refused, and a query ends after `--timeout` seconds.
"""


@page("sql")
def markdown() -> str:
    """Return the page."""
    parts = [_HEAD]
    for name, view in VIEWS.items():
        rows = "".join(f"| `{field.name}` | {field.text} |\n" for field in view.fields)
        parts.append(f"\n## {name}\n\n{view.text}\n\n| column | definition |\n|---|---|\n{rows}")
    return "".join(parts)
