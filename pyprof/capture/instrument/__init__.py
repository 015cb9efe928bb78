# SPDX-License-Identifier: Apache-2.0
"""Instrumentation of the program: calls, modules, ranges, optimizers, checkpoints, graphs, compilation."""
