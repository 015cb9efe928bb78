# SPDX-License-Identifier: Apache-2.0
"""The viewer: a web server on a profile database. Needs the extra `viewer` (fastapi, uvicorn, XlsxWriter, fpdf2).

command   `pyprof view` and `dlprofviewer`        app       the application: routes, errors, the page
library   which profile is served, its runs       security  hosts, token, headers
engine    a process of its own for what costs     frames    paging, sorting and filtering of tables
"""
