# SPDX-License-Identifier: Apache-2.0
"""Steps: where they are cut, which are steady, and the sums over those that are used."""
