# SPDX-License-Identifier: Apache-2.0
"""See what the program does: calls, modules, ranges, optimizers, checkpoints, graphs, compilation."""
