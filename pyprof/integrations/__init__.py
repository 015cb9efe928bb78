# SPDX-License-Identifier: Apache-2.0
"""Plugins for other programs, one file each. A module here imports PyProf's parts when they are first used: the other
program loads it at every start.
"""
