"""Rates by one number: the time at which the next event would come if they came evenly (GCRA).

An event may come before its time by as many intervals as `burst` allows beyond the first, so that
after a quiet time so many may come at once. With a burst of 1 no period ever sees more events than
the rate says; with more, up to `burst - 1` more.
"""

from __future__ import annotations

from holdfast.clock import Micros


def interval(count: int, micros: Micros) -> Micros:
    """How far apart events are; rounded up, so that a rate is never exceeded."""
    return -(-micros // count)


def free_at(next_at: Micros, interval: Micros, burst: int) -> Micros:
    """When the next event may come."""
    return next_at - (burst - 1) * interval


def after(next_at: Micros, interval: Micros, now: Micros) -> Micros:
    """The new `next_at`, when an event comes."""
    return max(next_at, now) + interval
