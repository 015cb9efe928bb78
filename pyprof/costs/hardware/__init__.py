# SPDX-License-Identifier: Apache-2.0
"""Peaks of GPUs and processors, and what they say of each row: roofline, HFU and MFU."""
