# SPDX-License-Identifier: Apache-2.0
"""Foundations of capture: names of torch that may change, options, the table of operators."""
