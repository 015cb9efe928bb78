# SPDX-License-Identifier: Apache-2.0
"""Work of devices over time: busy, overlapping, communicating."""
