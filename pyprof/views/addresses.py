# SPDX-License-Identifier: Apache-2.0
"""Addresses of the page, for other programs that lead there."""

from __future__ import annotations

from urllib.parse import quote, urlencode


def address(page: str, view: str, **parameters: str) -> str:
    """Return the address of a view of the page that runs at `page`.

    >>> address("http://localhost:8000/", "kernels", d="kernel:a b")
    'http://localhost:8000/#/kernels?d=kernel%3Aa%20b'
    """
    query = urlencode(parameters, quote_via=quote)
    return f"{page.rstrip('/')}/#/{view}" + (f"?{query}" if query else "")
