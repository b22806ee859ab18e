"""What the demo plays: the steps that are needed, what the model says, and when somebody dies."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Service = Literal["llm", "tool"]


@dataclass
class Call:
    """A request that reached the model or the office."""

    service: Service
    label: str
    key: str  # the idempotency key
    pid: int  # of the worker that sent it
    at: float  # seconds since 1970
    status: int | None = None  # None while it is in flight
    ended_at: float | None = None


@dataclass(frozen=True)
class Row:
    """A step that must happen once."""

    title: str
    service: Service | Literal["outer", "human"]
    key: str  # in the journal
    label: str = ""  # how its request begins

    def made(self, call: Call) -> bool:
        return bool(self.label) and call.label.startswith(self.label)


@dataclass(frozen=True)
class Moment:
    """When to kill: this request has arrived and is not answered yet."""

    label: str
    text: str
    after: str | None = None  # and this entry is in the journal


TOPIC = "Europe by night"

ROWS = (
    Row("plan", "llm", "/think#0", "plan"),
    Row("├ night trains: question", "llm", "/researcher@0/think#0", "question on night trains"),
    Row("│   search", "tool", "/researcher@0/use#0", "search night trains"),
    Row("│   archive", "tool", "/researcher@0/use#1", "archive night trains"),
    Row("│   notes", "llm", "/researcher@0/think#1", "notes on night trains"),
    Row("├ short flights: question", "llm", "/researcher@1/think#0", "question on short flights"),
    Row("│   search", "tool", "/researcher@1/use#0", "search short flights"),
    Row("│   archive", "tool", "/researcher@1/use#1", "archive short flights"),
    Row("│   notes", "llm", "/researcher@1/think#1", "notes on short flights"),
    Row("draft", "llm", "/think#1", "draft"),
    Row("critique", "llm", "/think#2", "critique"),
    Row("approval", "human", "/approval:release#0"),
    Row("publish", "outer", "/publish#0"),
    Row("└ page", "tool", "/publish#0/use#0", "page"),
    Row("└ pictures", "tool", "/publish#0/use#1", "pictures"),
    Row("└ announce", "tool", "/publish#0/use#2", "announce"),
    Row("subject line", "llm", "/think#3", "subject line"),
    Row("mail", "tool", "/use#0", "mail"),
    Row("invoice", "tool", "/use#1", "invoice"),
)

SCRIPT = {
    "plan": "Two researchers, then a draft.",
    "question on": "How long does it take, door to door?",
    "notes on": "Eleven hours asleep, or three in queues.",
    "draft": "Sleep your way across Europe.",
    "critique": "Good. Cut the second sentence.",
    "subject line": "Wake up in Vienna",
}

MOMENTS = (
    Moment("plan", "while the model was answering"),
    Moment("notes on short flights", "one researcher done, one busy", "/researcher@0/think#1"),
    Moment("announce", "inside a tool, in its third step"),
    Moment("invoice", "the invoice was out, its answer not in"),
)
EVERYBODY = "all workers, while waiting for approval"

RATE_LIMITED, RETRY_AFTER_SECONDS = "draft", 1
FLAKY = ("mail",)
