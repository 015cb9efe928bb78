# SPDX-License-Identifier: Apache-2.0
"""Live inside the user's process: signals, termination, the main thread, garbage collection, own faults."""
