# SPDX-License-Identifier: Apache-2.0
"""The viewer: a web server on a profile database. Needs the extra `viewer` (fastapi, uvicorn, XlsxWriter, fpdf2).

command   `pyprof view` and `dlprofviewer`        app       the application: routes, errors, the page
library   the served profile and its runs         security  hosts, token, headers
engine    child processes for expensive tasks     column_table  paging, sorting, filtering
"""
