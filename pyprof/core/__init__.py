# SPDX-License-Identifier: Apache-2.0
"""Ground floor: the data model, text of ranges, intervals, registries, errors, units, files."""
