# SPDX-License-Identifier: Apache-2.0
"""Description of the machine and the run: facts, processor, clock, rank, cost of recording."""
