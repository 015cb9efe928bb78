# SPDX-License-Identifier: Apache-2.0
"""Print a reference page."""

import sys

from pyprof.arguments import nearest
from pyprof.reference import pages


def main(words: list[str]) -> int:
    """Print the page that is named, or the names of all; returns the exit code."""
    known = pages()
    if not words:
        print("\n".join(known))
        return 0
    if len(words) > 1 or words[0] not in known:
        name = " ".join(words)
        print(f"no page {name!r}.{nearest(name, known)} Choose from {', '.join(known)}.", file=sys.stderr)
        return 2
    print(known[words[0]](), end="")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
