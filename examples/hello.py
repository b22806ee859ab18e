"""A research agent that finishes: `python -m examples.hello`.

Kill it whenever you like (`kill -9`, Ctrl-C, pull the plug) and run it again: it says
`resumed report-7 at step …` and goes on at the step that had not finished. Its journal is
agents.db, in the directory you run it from; delete that to start over. At the end it waits for
your approval, also while it is dead:

    holdfast resolve report-7 release --approve --by me --db agents.db
"""

import asyncio
from datetime import timedelta

import holdfast


@holdfast.step(
    retry=holdfast.Retry(attempts=5, backoff=timedelta(seconds=2), give_up_on=(ValueError,))
)
async def ask_model(prompt: str) -> str:
    print(f"asking the model: {prompt[:60]}", flush=True)
    await asyncio.sleep(1)  # your model call
    return f"notes on {prompt}"


@holdfast.step
def publish(draft: str) -> str:  # sync functions are steps too
    print("publishing", flush=True)
    return "https://blog/1"


@holdfast.workflow
async def research(question: str) -> str:
    notes = await asyncio.gather(*(ask_model(f"{question} {i}") for i in range(3)))
    draft = await ask_model(" ".join(notes))
    approval = holdfast.approval("release", draft)
    match await holdfast.race(decision=approval, expired=holdfast.sleep(timedelta(days=2))):
        case "decision", holdfast.Decision(approved=True):
            return await asyncio.to_thread(publish, draft)
        case "decision", holdfast.Decision(by=who):
            return f"declined by {who}"
        case _:
            return "nobody answered in two days"


app = holdfast.Holdfast("sqlite:///agents.db", workflows=[research])


async def main() -> None:
    async with app:  # in-process worker; takes up what an earlier process left
        run = await app.with_options(id="report-7").start(research, "Why is the sky dark?")
        print(await run.result())


if __name__ == "__main__":
    asyncio.run(main())  # in production: holdfast serve examples.hello:app --workers 4
