"""People whom a crew or a flow asks: durable waits instead of prompts in a terminal.

A task with `human_input=True` waits for `approval("<task>")`, a flow's method with
`@human_feedback` for `approval("<method>")`; the comment of the decision is what the person said.
A second question of the same task or method ends in `#2`. In a workflow of yours, which may run
several crews, the name ends in `:` and eight digits.
"""

from __future__ import annotations

from typing import Any

from crewai.agents.parser import AgentFinish
from crewai.core.providers.human_input import SyncHumanInputProvider

import holdfast
from holdfast.adapters._questions import question
from holdfast.adapters.crewai.active import Settings, active

_DIGITS = 8


class Questions:
    """Names for what is asked: each once in a run."""

    def __init__(self, settings: Settings) -> None:
        self._suffix = "" if settings.is_own_run else f":{holdfast.idempotency_key()[:_DIGITS]}"
        self._asked: dict[str, int] = {}

    def name(self, who: str) -> str:
        n = self._asked[who] = self._asked.get(who, 0) + 1
        return f"{who if n == 1 else f'{who}#{n}'}{self._suffix}"


class Person(SyncHumanInputProvider):
    """Who reads the answers of tasks with `human_input=True`."""

    def __init__(self, settings: Settings) -> None:
        self._questions = Questions(settings)

    def handle_feedback(self, formatted_answer: AgentFinish, context: Any) -> AgentFinish:
        answer, found = formatted_answer, active()
        who = ".".join(found.path) if found is not None and found.path else "crew"
        while context.ask_for_human_input:
            shown = {"task": who, "answer": self._get_output_string(answer)}
            decision = holdfast.approval(self._questions.name(who), question(shown)).result()
            feedback = "" if decision.approved else (decision.comment or "")
            if not feedback.strip():
                context.ask_for_human_input = False
            else:
                context.messages.append(context._format_feedback_message(feedback))
                answer = context._invoke_loop()
        return answer
