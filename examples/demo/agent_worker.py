"""One worker process of the demo. It knows nothing of the others: they share a file, that is all.

It ends when its standard input is closed, so that none is left over when the demo itself is killed.
"""

from __future__ import annotations

import asyncio
import os
import sys
from datetime import timedelta

import holdfast
from examples.demo.agent import OFFICE, client, report

# A death is told by the operating system: no take-over that you see waits for this lease.
options = holdfast.WorkerOptions(lease=timedelta(minutes=1))
app = holdfast.Holdfast(os.environ["DEMO_STORE"], workflows=[report], worker_options=options)


async def main() -> None:
    await client.get(OFFICE)  # a worker that may have to take over at once had better be warm
    async with app:
        await asyncio.to_thread(sys.stdin.read)


if __name__ == "__main__":
    asyncio.run(main())
