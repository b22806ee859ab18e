"""`holdfast crash-test` finds crews and classes of flows in their users' unchanged files."""

from __future__ import annotations

from pathlib import Path

from tests.adapters.crash_testing import assert_only_durable_agents_go_on, crash_test

CREW = """
from crewai import LLM, Agent, Crew, Task
from crewai.tools import tool

llm = LLM("gpt-5", base_url=URL, api_key="none")
tools = [tool("refund")(refund)]
helper = Agent(role="Support", goal="Help", backstory="Kind", llm=llm, tools=tools)
task = Task(name="answer", description="{question}", expected_output="text", agent=helper)
crew = Crew(name="support", agents=[helper], tasks=[task])
"""
FLOW = """
from crewai.flow.flow import Flow, listen, start

class Refunds(Flow[dict]):
    @start()
    def begin(self):
        return refund("7")

    @listen(begin)
    def again(self, refunded):
        return refund("8")
"""


def test_an_unchanged_crew_repeats_its_work_and_a_durable_one_does_not(tmp_path: Path) -> None:
    told = crash_test(tmp_path, CREW, '{"question": "Give it back"}')
    assert told["effects"] == ["refund"] and not told["outside_steps"]
    assert_only_durable_agents_go_on(told)


def test_a_class_of_flows_is_found_and_tested_alike(tmp_path: Path) -> None:
    told = crash_test(tmp_path, FLOW, asked=0)
    assert told["adapter"] == "crewai" and told["effects"] == ["refund"]
    assert_only_durable_agents_go_on(told)
