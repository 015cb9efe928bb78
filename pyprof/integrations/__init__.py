# SPDX-License-Identifier: Apache-2.0
"""Outlets of a profile in other programs, one file each. A module that another program loads at every start imports
PyProf's parts when they are first used. Each needs its own extra, and says so where that is missing."""
