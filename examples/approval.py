"""A human in the loop: `python -m examples.approval`, and again with `approve` or `decline`.

The first call starts a refund that needs a signature, and leaves: the run waits in refunds.db,
outside of any process, for as long as it takes. The second call signs, in a process of its own,
and sees the run through.
"""

import asyncio
import sys
from datetime import timedelta

import holdfast


@holdfast.step
async def pay(customer: str, euros: int) -> str:
    # Give your bank this key: a payment made twice under it is one payment.
    return f"paid {euros} € to {customer} ({holdfast.idempotency_key()[:8]})"


@holdfast.workflow
async def refund(customer: str, euros: int) -> str:
    signature = holdfast.approval("signature", f"Refund {euros} € to {customer}?")
    match await holdfast.race(signed=signature, late=holdfast.sleep(timedelta(days=7))):
        case "signed", holdfast.Decision(approved=True):
            return await pay(customer, euros)
        case "signed", holdfast.Decision(by=who, comment=why):
            return f"declined by {who}: {why}"
        case _:
            return "nobody signed within a week"


app = holdfast.Holdfast("sqlite:///refunds.db", workflows=[refund])


async def main() -> None:
    async with app:
        run = await app.with_options(id="refund-1").start(refund, "Ada", 120)
        match sys.argv[1:]:
            case []:
                print("waiting for a signature: python -m examples.approval approve|decline")
            case [answer]:
                if not (await run.status()).ended:
                    decision = holdfast.Decision(answer == "approve", by="Grace", comment="policy")
                    await run.resolve("signature", decision, early=True)
                print(await run.result())


if __name__ == "__main__":
    asyncio.run(main())
