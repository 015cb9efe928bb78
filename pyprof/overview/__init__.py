# SPDX-License-Identifier: Apache-2.0
"""Overview in the terminal: the main results of a recording, in at most 18 lines that fit the width.

`figures` takes the numbers from the reports (step_time, op_type, module, coverage, expert_systems), `lines` turns
them into text, `ending` prints that text at the end of `pyprof run`. `pyprof report FILE` prints the same lines.
"""
