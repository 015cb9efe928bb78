# SPDX-License-Identifier: Apache-2.0
"""A package that brings one of everything to PyProf, by the entry points beside it."""
