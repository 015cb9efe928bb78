# SPDX-License-Identifier: Apache-2.0
"""Ranks beside each other: their clocks, collectives, and who is late."""
