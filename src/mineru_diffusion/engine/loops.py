"""The loop guard: does the tail of a sequence repeat itself beyond what documents do?

Real documents repeat: rules of dashes, dotted leaders, twenty equal table rows. A stuck decoder repeats without end.
The difference is only the number of repeats, so the bounds are generous: a loop costs some passes before it is caught,
a false alarm would cost text.
"""

from __future__ import annotations

from collections.abc import Sequence

MIN_LENGTH = 200
"""A repeating tail shorter than this many tokens is never a loop."""

MAX_PERIOD = 256


def _min_repeats(period: int) -> int:
    """Short periods (rules, leaders, equal table rows) repeat in real documents; whole paragraphs hardly do."""
    if period < 16:
        return 64  # an empty form of 40 rows is such a period, 40 times
    if period < 64:
        return 40
    return 16 if period < 128 else 6


def repeating_tail(tokens: Sequence[int]) -> int | None:
    """Length to keep if the tail is a loop (everything before it and one period), else None.

    For every period p up to `MAX_PERIOD`, counts how far back token i equals token i - p.
    """
    total = len(tokens)
    if total < MIN_LENGTH:
        return None
    for period in range(1, min(MAX_PERIOD, total // 2) + 1):
        needed = max(MIN_LENGTH, period * _min_repeats(period))
        if needed > total or tokens[-1] != tokens[-1 - period]:
            continue
        run = period
        while run < total and tokens[total - 1 - run] == tokens[total - 1 - run + period]:
            run += 1
        if run >= needed:
            return total - run + period
    return None
