"""Helpers for tests of durable code: a store in memory, a clock to move, crashes on demand."""

from holdfast.testing.crashes import CrashReport, NotDurable, crash_everywhere
from holdfast.testing.environment import Environment, NotSettled

__all__ = ["CrashReport", "Environment", "NotDurable", "NotSettled", "crash_everywhere"]
