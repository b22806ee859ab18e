"""`holdfast crash-test` finds agents of each framework in their users' unchanged files."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.adapters.crash_testing import assert_only_durable_agents_go_on, crash_test

OPENAI_AGENTS = """
from agents import Agent, OpenAIChatCompletionsModel, function_tool
from openai import AsyncOpenAI

model = OpenAIChatCompletionsModel("gpt-5", AsyncOpenAI(base_url=URL, api_key="none"))
agent = Agent(name="support", tools=[function_tool(refund)], model=model)
"""
PYDANTIC_AI = """
from pydantic_ai import Agent
from pydantic_ai.models.openai import OpenAIChatModel
from pydantic_ai.providers.openai import OpenAIProvider

model = OpenAIChatModel("gpt-5", provider=OpenAIProvider(base_url=URL, api_key="none"))
agent = Agent(model, name="support", tools=[refund])
"""
LANGCHAIN = """
from langchain.agents import create_agent
from langchain_openai import ChatOpenAI

model = ChatOpenAI(model="gpt-5", base_url=URL, api_key="none")
agent = create_agent(model, [refund], name="support")
"""
STRANDS = """
from strands import Agent, tool
from strands.models.openai import OpenAIModel

model = OpenAIModel(client_args={"base_url": URL, "api_key": "none"}, model_id="gpt-5")
agent = Agent(model=model, name="support", tools=[tool(refund)], callback_handler=None)
"""
AGENT_FRAMEWORK = """
from agent_framework import Agent, tool
from agent_framework.openai import OpenAIChatCompletionClient

client = OpenAIChatCompletionClient(model="gpt-5", base_url=URL, api_key="none")
agent = Agent(client, name="support", tools=[tool(refund, approval_mode="never_require")])
"""
GOOGLE_ADK = """
from google.adk.agents import LlmAgent
from google.adk.models import Gemini

model = Gemini(model="gemini-m", base_url=URL, client_kwargs={"api_key": "none"})
agent = LlmAgent(name="support", model=model, tools=[refund])
"""
OWN_LOOP = """
import json

from openai import AsyncOpenAI

client = AsyncOpenAI(base_url=URL, api_key="none")

async def main(question: str) -> str:
    messages = [{"role": "user", "content": question}]
    while True:
        answer = await client.chat.completions.create(model="gpt-5", messages=messages)
        message = answer.choices[0].message
        if not message.tool_calls:
            return message.content
        messages.append(message.model_dump(exclude_none=True))
        for call in message.tool_calls:
            result = refund(**json.loads(call.function.arguments))
            messages.append({"role": "tool", "tool_call_id": call.id, "content": result})
"""
MADE_INSIDE = """
import asyncio

from openai import AsyncOpenAI

async def main(question: str) -> str:
    client = AsyncOpenAI(base_url=URL, api_key="none")
    for _ in range(2):
        await client.responses.create(model="gpt-5", input=question)
        await asyncio.sleep(0.001)
    return "done"
"""


@pytest.mark.parametrize(
    "code",
    [
        pytest.param(OPENAI_AGENTS, id="openai_agents"),
        pytest.param(PYDANTIC_AI, id="pydantic_ai"),
        pytest.param(LANGCHAIN, id="langchain"),
        pytest.param(LANGCHAIN.replace(', name="support"', ""), id="langchain without a name"),
        pytest.param(PYDANTIC_AI.replace('name="support", ', ""), id="pydantic_ai without a name"),
        pytest.param(STRANDS, id="strands"),
        pytest.param(AGENT_FRAMEWORK, id="agent_framework"),
        pytest.param(GOOGLE_ADK, id="google_adk"),
    ],
)
def test_an_unchanged_agent_repeats_its_work_and_a_durable_one_does_not(
    tmp_path: Path, code: str
) -> None:
    told = crash_test(tmp_path, code, "Give it back")
    assert told["effects"] == ["refund"] and not told["outside_steps"]
    assert_only_durable_agents_go_on(told)


def test_a_loop_of_ones_own_asks_its_model_once_and_is_told_which_functions_are_no_steps(
    tmp_path: Path,
) -> None:
    told = crash_test(tmp_path, OWN_LOOP, "Give it back")
    assert told["effects"] == [] and told["outside_steps"] == ["refund"]
    assert_only_durable_agents_go_on(told)


def test_calls_of_an_agent_that_is_made_out_of_sight_count_as_repeated(tmp_path: Path) -> None:
    told = crash_test(tmp_path, MADE_INSIDE, "Give it back", every=2, exit_code=1)
    assert told["models_outside_steps"] == 2
    assert told["durable"]["models_repeated"] >= 1
    assert not told["holds"]
