# SPDX-License-Identifier: Apache-2.0
"""The gate: whether a run is slower than another by more than a limit, for continuous integration.

`conditions` reads what is limited, `significance` compares iterations, `verdict` puts both together, `outputs` writes
the verdict for people and machines. docs/ci.md describes all of it.
"""
