# SPDX-License-Identifier: Apache-2.0
"""From rows to figures: cost formulas, kernel names, columns, the table."""
