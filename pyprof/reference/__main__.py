# SPDX-License-Identifier: Apache-2.0
"""Print a reference page."""

import sys

from pyprof.core.arguments import nearest
from pyprof.reference import pages


def main(words: list[str]) -> int:
    """Print the named page, or the names of all pages; return the exit code."""
    available = pages()
    if not words:
        print("\n".join(available))
        return 0
    if len(words) > 1 or words[0] not in available:
        name = " ".join(words)
        print(
            f"no page {name!r}.{nearest(name, available)} Choose from {', '.join(available)}.",
            file=sys.stderr,
        )
        return 2
    print(available[words[0]](), end="")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
