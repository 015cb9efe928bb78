# SPDX-License-Identifier: Apache-2.0
"""Turn a recording into the tables of facts: one module per table or group of tables. `facts` has their order."""
