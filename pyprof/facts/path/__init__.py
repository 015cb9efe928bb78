# SPDX-License-Identifier: Apache-2.0
"""The critical path, its replay with changes, and the causes of waits along it."""
