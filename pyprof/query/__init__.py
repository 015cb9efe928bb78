# SPDX-License-Identifier: Apache-2.0
"""SQL over a profile: views with stable names, on a connection that can only read."""
