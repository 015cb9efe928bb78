# SPDX-License-Identifier: Apache-2.0
"""A profile on a terminal: `pyprof top`. Needs the extra `tui` (textual, and pydantic for the details of the page).

app      tabs, keys, what is loaded when       grid    a table of any length: only the rows in view are drawn
sheets   the tables: reports, and what of each is shown, with filters, order, details and addresses
pages    texts: overview, details, help        desk    the thread that computes reports
"""
