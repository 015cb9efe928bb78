# SPDX-License-Identifier: Apache-2.0
"""Figures over facts, each defined once: what events can be grouped by, their sums, and the figures of any group.

launches     sums over events of devices, by any of its keys
efficiency   how well a group of kernels uses its device
"""
