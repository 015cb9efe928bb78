# SPDX-License-Identifier: Apache-2.0
"""Work of operators in FLOPs and bytes (`ops`), its attribution to kernels, kernel names, and peaks (`hardware`)."""
