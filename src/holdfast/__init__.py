"""Holdfast: AI agents that finish, whatever dies."""

from holdfast.client import Holdfast, Run
from holdfast.clock import FakeClock, SystemClock
from holdfast.codec import register
from holdfast.engine.step import idempotency_key, step
from holdfast.engine.value import now, once, random, uuid4
from holdfast.engine.wait import (
    Decision,
    approval,
    child,
    continue_as,
    promise,
    race,
    receive,
    sleep,
    sleep_until,
)
from holdfast.engine.workflow import Workflow, remote, workflow
from holdfast.errors import *  # noqa: F403
from holdfast.retry import Retry
from holdfast.types import RunFilter, Status
from holdfast.worker.worker import WorkerOptions
