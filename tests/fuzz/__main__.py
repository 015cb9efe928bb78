# SPDX-License-Identifier: Apache-2.0
"""python -m tests.fuzz --count 10000     run changed files of every format through the commands; print a table

python -m tests.fuzz --format kineto --seed 17 --all --verbose --keep bad.json     one file, through all commands
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import threading
import time
from collections import Counter
from pathlib import Path

from tests.fuzz.commands import COMMANDS
from tests.fuzz.seeds import SEEDS
from tests.fuzz.verdicts import FAULTS, VERDICTS, Fuzzer


def main() -> int:
    """Print the table of verdicts; returns 1 if there were faults."""
    parser = argparse.ArgumentParser(description="Example: python -m tests.fuzz --count 10000")
    parser.add_argument("--count", type=int, default=900, help="files, of all formats; default: %(default)s")
    parser.add_argument("--first", type=int, default=0, help="number of the first seed; default: %(default)s")
    parser.add_argument("--format", choices=SEEDS, help="one format; default: all")
    parser.add_argument("--seed", type=int, help="one file")
    parser.add_argument("--commands", type=int, default=2, help="commands per file, by chance; default: %(default)s")
    parser.add_argument("--all", action="store_true", help="every command with every file")
    parser.add_argument("--jobs", type=int, default=2, help="processes; default: %(default)s")
    parser.add_argument("--verbose", action="store_true", help="print what each run said")
    parser.add_argument("--keep", metavar="FILE", help="copy the changed file there")
    a = parser.parse_args()
    formats = [a.format] if a.format else list(SEEDS)
    seeds = [a.seed] if a.seed is not None else range(a.first, a.first + a.count // len(formats))
    # As 1 file of each format after the other, so that a run that is cut off has looked at all.
    work = [(format_, seed) for seed in seeds for format_ in formats]
    counts: dict[str, Counter[str]] = {format_: Counter() for format_ in formats}
    lock, begun = threading.Lock(), time.monotonic()
    commands = list(COMMANDS) if a.all else a.commands

    def worker() -> None:
        with tempfile.TemporaryDirectory(prefix="pyprof-fuzz-") as folder, Fuzzer(Path(folder)) as fuzzer:
            while True:
                with lock:
                    if not work:
                        return
                    format_, seed = work.pop(0)
                verdicts, answer = fuzzer.run(format_, seed, commands, keep=a.keep)
                with lock:
                    counts[format_]["files"] += 1
                    for one in verdicts:
                        counts[format_]["runs"] += 1
                        counts[format_][one.verdict] += 1
                        if one.verdict in FAULTS:
                            what = [result.get("change") for result in answer["results"][:1]]
                            print(
                                f"{format_} {seed} {one.command} {one.verdict} {what}: {one.why}\n",
                                flush=True,
                            )
                    if a.verbose:
                        for result in answer["results"]:
                            print(result)

    threads = [threading.Thread(target=worker) for _ in range(a.jobs)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    print(table(counts))
    print(f"{time.monotonic() - begun:.0f} s", file=sys.stderr)
    return int(any(counts[format_][fault] for format_ in formats for fault in FAULTS))


def table(counts: dict[str, Counter[str]]) -> str:
    """Markdown: formats by verdicts."""
    head = ("files", "runs", *VERDICTS)
    lines = [f"| format | {' | '.join(head)} |", f"|---|{'---:|' * len(head)}"]
    total: Counter[str] = Counter()
    for format_, found in counts.items():
        total.update(found)
        lines.append(f"| {format_} | {' | '.join(f'{found[name]:,}' for name in head)} |")
    lines.append(f"| sum | {' | '.join(f'{total[name]:,}' for name in head)} |")
    return "\n".join(lines)


if __name__ == "__main__":
    sys.exit(main())
