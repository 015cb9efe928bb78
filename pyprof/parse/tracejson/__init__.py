# SPDX-License-Identifier: Apache-2.0
"""Chrome trace JSON as torch.profiler (Kineto) writes it: text, events, columns."""
