# SPDX-License-Identifier: Apache-2.0
"""Outlets of a profile in other programs. Each needs its own extra, and says so where that is missing."""
