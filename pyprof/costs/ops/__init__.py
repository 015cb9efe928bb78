# SPDX-License-Identifier: Apache-2.0
"""Cost formulas, one file per family. Open folder: new files are loaded automatically."""
