# SPDX-License-Identifier: Apache-2.0
"""Coexistence with the user's process: signals, termination, the main thread, garbage collection, internal errors."""
