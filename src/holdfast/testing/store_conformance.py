"""What every store must do, as tests that any store can run.

    class TestMyStore(StoreConformance):
        @pytest.fixture
        async def store(self) -> AsyncIterator[Store]:
            store = MyStore(...)
            await store.open()
            yield store
            await store.close()

The fixture gives an open store that holds nothing. pytest-asyncio must be in auto mode. To have
failures shown with their values, call `pytest.register_assert_rewrite("holdfast.testing")` before
the import. What this suite does not test is what the platform adds: the death of processes, full
disks, lost connections.
"""

from __future__ import annotations

from holdfast.testing.conformance import (
    busy,
    children,
    claims,
    commits,
    deadlines,
    fairness,
    forgetting,
    lives,
    mail,
    queues,
    schedules,
    sessions,
    upkeep,
)


class StoreConformance(
    commits.Starting,
    commits.Appending,
    commits.Fencing,
    lives.Suspending,
    lives.Ending,
    lives.ContinuingAs,
    lives.StoppingAndGoingOn,
    children.AwaitedAgain,
    children.AwaitedByTheNextGeneration,
    children.RunAgain,
    mail.Posting,
    deadlines.CancelledUnclaimed,
    deadlines.Deadlines,
    claims.Claiming,
    claims.Suspects,
    claims.Workers,
    queues.Limits,
    queues.Rates,
    fairness.Fairness,
    queues.Limiters,
    sessions.Sessions,
    sessions.Ahead,
    sessions.Children,
    busy.OnBusy,
    sessions.State,
    forgetting.Forgetting,
    schedules.Schedules,
    schedules.Ticks,
    upkeep.Finding,
    upkeep.Listening,
    upkeep.Pruning,
    upkeep.Closing,
):
    """All of it, for a fixture named `store`."""


__all__ = ["StoreConformance"]
