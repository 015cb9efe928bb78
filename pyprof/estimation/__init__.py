# SPDX-License-Identifier: Apache-2.0
"""Calls of a function and totals of its modules, with parameters, FLOPs and bytes, without a recording."""
