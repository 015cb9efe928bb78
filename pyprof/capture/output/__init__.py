# SPDX-License-Identifier: Apache-2.0
"""Turn what the windows recorded into a capture file."""
