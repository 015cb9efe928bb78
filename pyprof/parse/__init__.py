# SPDX-License-Identifier: Apache-2.0
"""From a recording to rows: formats, join, pairing, and the `parse` command."""
