# SPDX-License-Identifier: Apache-2.0
"""The `dlprof` command: DLProf's options on top of PyProf's recording, database, reports and rules.

`options` is the table of options, `application` and `child` run the program, `outputs` names the files, `results`
writes them from a recording, `command` runs these steps in order. The option reference, docs/dlprof.md, is generated
from the table.
"""
