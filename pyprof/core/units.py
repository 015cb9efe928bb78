# SPDX-License-Identifier: Apache-2.0
"""Numbers as text for people: durations, sizes, shares, and counts or rates with a prefix.

Sizes of memory are binary (1 MiB = 1,048,576 B), counts and rates decimal (1 MB/s = 1,000,000 B/s), three digits each.
The page has the same in frontend/src/lib/format.ts.
"""

from __future__ import annotations

TIMES = (("s", 1e9), ("ms", 1e6), ("us", 1e3), ("ns", 1.0))  # in ns
SIZES = (("TiB", 2.0**40), ("GiB", 2.0**30), ("MiB", 2.0**20), ("KiB", 2.0**10), ("B", 1.0))


def duration(ns: float) -> str:
    """Return a duration in the unit that suits it.

    >>> duration(1234567), duration(4200), duration(12), duration(61e9), duration(999_600)
    ('1.23 ms', '4.20 us', '12 ns', '61.0 s', '1.00 ms')
    """
    return _with_unit(ns, TIMES)


def size(count: float) -> str:
    """Return a number of bytes in the unit that suits it.

    >>> size(1048576), size(1500), size(12)
    ('1.00 MiB', '1.46 KiB', '12 B')
    """
    return _with_unit(count, SIZES)


def _with_unit(value: float, units: tuple[tuple[str, float], ...]) -> str:
    # What would be rounded to 1,000 of a unit is 1 of the next.
    name, length = next((unit for unit in units[:-1] if abs(value) >= 0.9995 * unit[1]), units[-1])
    return f"{value:.0f} {name}" if length == 1 else f"{_three_digits(value / length)} {name}"


def _three_digits(number: float) -> str:
    return f"{number:.{2 - (abs(number) >= 9.995) - (abs(number) >= 99.95)}f}"


def percent(share: float) -> str:
    """Return a share of 1 in percent; a small one keeps two digits.

    >>> percent(0.123), percent(0.00042)
    ('12.3 %', '0.042 %')
    """
    return f"{100 * share:.1f} %" if share >= 0.01 or share == 0 else f"{100 * share:.2g} %"


def si(number: float) -> str:
    """Return a count with three digits and a decimal prefix.

    >>> si(999), si(25_557_032), si(1_820_000_000)
    ('999', '25.6 M', '1.82 G')
    """
    if number < 1000:
        return str(int(number))
    prefixes = iter("kMGTPE")
    prefix = ""
    while number >= 999.5 and (larger := next(prefixes, "")):
        number, prefix = number / 1000, larger
    return f"{_three_digits(number)} {prefix}"
