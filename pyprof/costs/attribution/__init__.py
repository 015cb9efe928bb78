# SPDX-License-Identifier: Apache-2.0
"""Attribute the cost of a call to one of its kernels or operator events."""
