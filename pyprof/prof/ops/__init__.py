# SPDX-License-Identifier: Apache-2.0
"""Cost formulas, one file per family. Open folder: a new file is found by itself."""
