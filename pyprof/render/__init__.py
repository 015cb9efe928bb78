# SPDX-License-Identifier: Apache-2.0
"""Write reports: as text for a terminal, and as files in every format."""
