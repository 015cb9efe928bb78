# SPDX-License-Identifier: Apache-2.0
"""Describe the machine and the run: facts, processor, clock, rank, cost of recording."""
