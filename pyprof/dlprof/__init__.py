# SPDX-License-Identifier: Apache-2.0
"""The `dlprof` command: DLProf's options, with PyProf's recording, database, reports and rules behind them.

`options` is the table of options, `application` and `child` run the program, `outputs` names the files, `engine` turns
a recording into them, `command` is the order of it all. Option reference: docs/dlprof.md, generated from the table.
"""
