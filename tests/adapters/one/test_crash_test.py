"""`holdfast crash-test` finds agents of each framework in their users' unchanged files."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from holdfast.testing.model_server import ModelServer, Reply
from tests.adapters.harness import QUIET
from tests.helpers.processes import environment

TOOL = '''
import os

def refund(order: str) -> str:
    """Gives money back."""
    with open("ledger", "a") as ledger:
        ledger.write(order + "\\n")
    return f"refunded {order}"

URL = os.environ["MODEL"]
'''
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
SCRIPT = [Reply(tool_calls=[("refund", {"order": "7"})]), Reply(text="It is done.")]


@pytest.mark.parametrize(
    ("code", "effects"),
    [
        pytest.param(OPENAI_AGENTS, ["refund"], id="openai_agents"),
        pytest.param(OWN_LOOP, [], id="own_loop"),
        pytest.param(PYDANTIC_AI, ["refund"], id="pydantic_ai", marks=pytest.mark.full),
        pytest.param(LANGCHAIN, ["refund"], id="langchain", marks=pytest.mark.full),
    ],
)
def test_an_unchanged_agent_repeats_its_work_and_a_durable_one_does_not(
    tmp_path: Path, code: str, effects: list[str]
) -> None:
    (tmp_path / "my_agent.py").write_text(TOOL + code)
    command = [sys.executable, "-m", "holdfast", "crash-test", "my_agent.py", "Give it back"]
    with ModelServer(SCRIPT) as model:
        done = subprocess.run(
            [*command, "--yes", "--json", "--every", "5"],
            cwd=tmp_path,
            env=environment(**QUIET, MODEL=model.url),
            capture_output=True,
            text=True,
        )
        assert done.returncode == 0, done.stderr
        assert len(model.requests) == 2
    told = json.loads(done.stdout)
    assert told["effects"] == effects
    assert told["outside_steps"] == ([] if effects else ["refund"])  # plain functions are no steps
    assert told["without"]["finished"] == told["without"]["kills"] >= 1
    assert told["without"]["models_repeated"] >= 1
    assert told["durable"]["finished"] == told["durable"]["kills"] >= 1
