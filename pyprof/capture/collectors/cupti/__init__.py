# SPDX-License-Identifier: Apache-2.0
"""Device events from CUPTI's Activity API, through ctypes: `library` finds and calls it, `records` has the layouts of
its records, `decode` turns buffers of them into columns, `collector` does it in a window.

Only the Activity API is used, never cuptiSubscribe: a process has one subscriber, and torch's profiler wants it.
"""
