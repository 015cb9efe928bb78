# SPDX-License-Identifier: Apache-2.0
"""Output of a recording: the capture file and its contents."""
