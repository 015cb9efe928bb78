# SPDX-License-Identifier: Apache-2.0
"""Tables, details and pictures of a profile as data, below HTTP: the server and `top` show them, MCP tells them."""
