# SPDX-License-Identifier: Apache-2.0
"""What every part of capture stands on: names of torch that may change, options, the table of operators."""
