"""One worker process of the demo. It knows nothing of the others: they share a file, that is all.

It ends when its standard input is closed, so that none is left over when the demo itself is killed.
"""

from __future__ import annotations

import asyncio
import os
import sys

import holdfast
from examples.demo.agent import OFFICE, client, report

app = holdfast.Holdfast(os.environ["DEMO_STORE"], workflows=[report])


async def main() -> None:
    await client.get(OFFICE)  # a worker that may have to take over at once had better be warm
    async with app:
        await asyncio.to_thread(sys.stdin.read)


if __name__ == "__main__":
    asyncio.run(main())
