# SPDX-License-Identifier: Apache-2.0
"""Time of hosts: what threads did, and what an idle device waited for."""
