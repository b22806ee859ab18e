"""All keys of the journals of some agents: no task or function of a framework's own is in them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from tests.adapters import keys
from tests.adapters.harness import Zygote
from tests.adapters.one import test_agent_framework as agent_framework
from tests.adapters.one import test_agent_framework_flows as agent_framework_flows
from tests.adapters.one import test_google_adk as google_adk
from tests.adapters.one import test_langgraph as langgraph
from tests.adapters.one import test_openai_agents as openai_agents
from tests.adapters.one import test_pydantic_ai as pydantic_ai
from tests.adapters.one import test_strands as strands

RUNS: dict[tuple[str, str], tuple[Any, dict[str, Any]]] = {
    ("openai_agents_cases", "plain"): (openai_agents.SCRIPT, {}),
    ("openai_agents_cases", "approved"): (openai_agents.REFUNDS, openai_agents.ANSWERS),
    ("openai_agents_cases", "team"): (
        openai_agents.teamwork,
        {"refund:call_0_0": {"approved": True}},
    ),
    ("pydantic_ai_cases", "started"): (pydantic_ai.SCRIPT, {}),
    ("pydantic_ai_cases", "streamed"): (pydantic_ai.SCRIPT, {}),
    ("pydantic_ai_cases", "approved"): (pydantic_ai.CAREFUL, pydantic_ai.ANSWERS),
    ("pydantic_ai_cases", "delegated"): (pydantic_ai.led, {}),
    ("langgraph_cases", "agent"): (langgraph.SCRIPT, {}),
    ("langgraph_cases", "superstep"): ({"left": "L", "right": "R"}, {}),
    ("langgraph_cases", "interrupted"): ({"verdict": "fine"}, langgraph.ANSWERS),
    ("langgraph_cases", "helped"): (langgraph.HELPED, {"call_0_0": "yes"}),
    ("strands_cases", "plain"): (strands.SCRIPT, {}),
    ("strands_cases", "approved"): (strands.REFUNDS, strands.ANSWERS),
    ("strands_cases", "team"): (strands.teamwork, {"sure:call_1_0": "yes"}),
    ("strands_cases", "graph"): (strands.five, {"sure:call_0_0": "yes"}),
    ("strands_cases", "swarm"): (strands.desk, {"sure:call_0_0": "yes"}),
    ("agent_framework_cases", "started"): (agent_framework.SCRIPT, {}),
    ("agent_framework_cases", "approved"): (agent_framework.CAREFUL, agent_framework.ANSWERS),
    ("agent_framework_flows", "superstep"): (
        agent_framework_flows.SCRIPT,
        {"left:1": "yes", "right:1": "no"},
    ),
    ("agent_framework_flows", "nested"): (agent_framework_flows.SCRIPT, {"sub:1": "yes"}),
    ("google_adk_cases", "plain"): (google_adk.SCRIPT, {}),
    ("google_adk_cases", "approved"): (google_adk.REFUNDS, google_adk.ANSWERS),
    ("google_adk_cases", "team"): (google_adk.teamwork, google_adk.TEAM_ANSWERS),
    ("google_adk_cases", "graph"): (google_adk.chores, google_adk.PUBLISHED),
}
KEYS = {
    ("openai_agents_cases", "plain"): """
        step /call_0_0@0/search#0
        step /call_0_0@0/search#0/note#0
        step /call_1_0@0/search#0
        step /call_1_0@0/search#0/note#0
        step /call_1_1@0/look#0
        step /model#0
        step /model#1
        step /model#2
    """,
    ("openai_agents_cases", "approved"): """
        promise /approval:refund:call_0_0#0
        promise /approval:refund:call_0_1#0
        step /call_0_0@0/refund#0
        step /model#0
        step /model#1
    """,
    ("openai_agents_cases", "team"): """
        promise /helper:call_1_0@0/approval:refund:call_0_0#0
        step /call_2_0@0/search#0
        step /call_2_0@0/search#0/note#0
        step /helper:call_1_0@0/call_0_0@0/refund#0
        step /helper:call_1_0@0/call_0_1@0/look#0
        step /helper:call_1_0@0/model#0
        step /helper:call_1_0@0/model#1
        step /model#0
        step /model#1
        step /model#2
        step /model#3
    """,
    ("pydantic_ai_cases", "started"): """
        step /researcher.model#0
        step /researcher.model#1
        step /researcher.model#2
        step /researcher.search:call_0_0#0
        step /researcher.search:call_0_0#0/note#0
        step /researcher.search:call_1_0#0
        step /researcher.search:call_1_0#0/note#0
        step /researcher.search:call_1_1#0
        step /researcher.search:call_1_1#0/note#0
        value /now#0
        value /uuid4#0
    """,
    ("pydantic_ai_cases", "streamed"): """
        step /researcher.model#0
        step /researcher.model#1
        step /researcher.model#2
        step /researcher.search:call_0_0#0
        step /researcher.search:call_0_0#0/note#0
        step /researcher.search:call_1_0#0
        step /researcher.search:call_1_0#0/note#0
        step /researcher.search:call_1_1#0
        step /researcher.search:call_1_1#0/note#0
        value /now#0
        value /uuid4#0
    """,
    ("pydantic_ai_cases", "approved"): """
        promise /approval:delete:call_0_0#0
        promise /approval:delete:call_0_1#0
        promise /promise:ask_elsewhere:call_0_2#0
        step /careful.ask_elsewhere:call_0_2#0
        step /careful.delete:call_0_0:approved#0
        step /careful.model#0
        step /careful.model#1
        step /careful.search:call_0_3#0
        step /careful.search:call_0_3#0/note#0
        value /now#0
        value /uuid4#0
    """,
    ("pydantic_ai_cases", "delegated"): """
        step /boss.delegate:call_0_0#0
        step /boss.delegate:call_0_0#0/helper.model#0
        step /boss.delegate:call_0_0#0/helper.model#1
        step /boss.delegate:call_0_0#0/helper.search:call_0_0#0
        step /boss.delegate:call_0_0#0/helper.search:call_0_0#0/note#0
        step /boss.delegate:call_1_0#0
        step /boss.delegate:call_1_0#0/helper.model#0
        step /boss.delegate:call_1_0#0/helper.model#1
        step /boss.delegate:call_1_0#0/helper.search:call_0_0#0
        step /boss.delegate:call_1_0#0/helper.search:call_0_0#0/note#0
        step /boss.model#0
        step /boss.model#1
        step /boss.model#2
        value /boss.delegate:call_0_0#0/now#0
        value /boss.delegate:call_0_0#0/uuid4#0
        value /boss.delegate:call_1_0#0/now#0
        value /boss.delegate:call_1_0#0/uuid4#0
        value /now#0
        value /uuid4#0
    """,
    ("langgraph_cases", "agent"): """
        step /model#0
        step /model#0/llm#0
        step /model#1
        step /model#1/llm#0
        step /model#2
        step /model#2/llm#0
        step /tools.0#0
        step /tools.0#0/search:call_0_0#0
        step /tools.0#0/search:call_0_0#0/note#0
        step /tools.0#1
        step /tools.0#1/search:call_1_0#0
        step /tools.0#1/search:call_1_0#0/note#0
        step /tools.1#0
        step /tools.1#0/search:call_1_1#0
        step /tools.1#0/search:call_1_1#0/note#0
        value /graph#0
    """,
    ("langgraph_cases", "superstep"): """
        step /asking#0
        step /asking#0/llm#0
        step /asking#0/llm#1
        step /failing#0
        step /plain#0
        step /steady#0
        step /steady#0/note#0
        step /steady#0/note#1
        value /graph#0
    """,
    ("langgraph_cases", "interrupted"): """
        promise /archive#0/promise:archive:1#0
        promise /inner:2.check#0/promise:inner:2%2Fcheck:1#0
        promise /publish#0/promise:publish:1#0
        promise /publish#0/promise:publish:1%232#0
        step /archive#0
        step /inner:2.check#0
        step /inner:2.check#0/llm#0
        step /publish#0
        value /graph#0
        value /inner:2.graph#0
    """,
    ("langgraph_cases", "helped"): """
        promise /tools.0#0/helper:call_0_0#0/tools.0#0/delete:call_0_0#0/promise:call_0_0#0
        step /model#0
        step /model#0/llm#0
        step /model#1
        step /model#1/llm#0
        step /tools.0#0
        step /tools.0#0/helper:call_0_0#0
        step /tools.0#0/helper:call_0_0#0/model#0
        step /tools.0#0/helper:call_0_0#0/model#0/llm#0
        step /tools.0#0/helper:call_0_0#0/model#1
        step /tools.0#0/helper:call_0_0#0/model#1/llm#0
        step /tools.0#0/helper:call_0_0#0/tools.0#0
        step /tools.0#0/helper:call_0_0#0/tools.0#0/delete:call_0_0#0
        value /graph#0
        value /tools.0#0/helper:call_0_0#0/graph#0
    """,
    ("strands_cases", "plain"): """
        step /look:call_1_1#0
        step /model#0
        step /model#1
        step /model#2
        step /search:call_0_0#0
        step /search:call_0_0#0/note#0
        step /search:call_1_0#0
        step /search:call_1_0#0/note#0
    """,
    ("strands_cases", "approved"): """
        promise /promise:sure:call_0_0#0
        promise /promise:sure:call_0_1#0
        step /look:call_0_2#0
        step /model#0
        step /model#1
        step /refund:call_0_0#0
        step /refund:call_0_0#1
        step /refund:call_0_1#0
        step /refund:call_0_1#1
    """,
    ("strands_cases", "team"): """
        promise /promise:sure:call_1_0#0
        step /helper:call_0_0@0/look:call_0_0#0
        step /helper:call_0_0@0/model#0
        step /helper:call_0_0@0/model#1
        step /helper:call_0_0@0/refund:call_1_0#0
        step /helper:call_0_0@1/model#0
        step /helper:call_0_0@1/refund:call_1_0#0
        step /model#0
        step /model#1
        step /model#2
        step /search:call_1_0#0
        step /search:call_1_0#0/note#0
    """,
    ("strands_cases", "graph"): """
        promise /promise:sure:call_0_0#0
        step /n1@0/model#0
        step /n2@0/model#0
        step /n3@0/model#0
        step /n3@0/model#1
        step /n3@0/search:call_0_0#0
        step /n3@0/search:call_0_0#0/note#0
        step /n4@0/model#0
        step /n4@0/refund:call_0_0#0
        step /n4@1/model#0
        step /n4@1/refund:call_0_0#0
        step /n5@0/model#0
    """,
    ("strands_cases", "swarm"): """
        promise /promise:sure:call_0_0#0
        step /billing@0/model#0
        step /billing@0/refund:call_0_0#0
        step /billing@1/model#0
        step /billing@1/refund:call_0_0#0
        step /triage@0/model#0
        step /triage@0/model#1
        step /triage@0/model#2
        step /triage@0/search:call_0_0#0
        step /triage@0/search:call_0_0#0/note#0
        thread /triage@0/handoff_to_agent:call_1_0@0/thread:handoff_to_agent%400#0
    """,
    ("agent_framework_cases", "started"): """
        step /researcher.model#0
        step /researcher.model#1
        step /researcher.model#2
        step /researcher.search:call_0_0#0
        step /researcher.search:call_0_0#0/note#0
        step /researcher.search:call_1_0#0
        step /researcher.search:call_1_0#0/note#0
        step /researcher.search:call_1_1#0
        step /researcher.search:call_1_1#0/note#0
    """,
    ("agent_framework_cases", "approved"): """
        promise /approval:delete:call_1_0#0
        promise /approval:delete:call_1_1#0
        step /careful.delete:call_1_0#0
        step /careful.model#0
        step /careful.model#1
        step /careful.model#2
        step /careful.search:call_0_0#0
        step /careful.search:call_0_0#0/note#0
        step /careful.search:call_1_2#0
        step /careful.search:call_1_2#0/note#0
        value /uuid4#0
    """,
    ("agent_framework_flows", "superstep"): """
        promise /promise:left:1#0
        promise /promise:right:1#0
        step /begins#0
        step /fails#0
        step /fails#0/note#0
        step /gathers#0
        step /gathers#1
        step /gathers#2
        step /left#0
        step /left#1
        step /researcher#0
        step /researcher#0/researcher.model#0
        step /researcher#0/researcher.model#1
        step /researcher#0/researcher.search:call_0_0#0
        step /researcher#0/researcher.search:call_0_0#0/note#0
        step /right#0
        step /right#1
        value /superstep.executors#0
    """,
    ("agent_framework_flows", "nested"): """
        promise /promise:sub:1#0
        step /gathers#0
        step /sub@0/asks#0
        step /sub@1/asks#0
        step /sub@1/says#0
        value /outer.executors#0
    """,
    ("google_adk_cases", "plain"): """
        step /agent.model#0
        step /agent.model#1
        step /agent.model#2
        step /look:call_1_1#0
        step /search:call_0_0#0
        step /search:call_0_0#0/note#0
        step /search:call_1_0#0
        step /search:call_1_0#0/note#0
        step /session.create_session#0
        step /session.get_session#0
        value /uuid4#0
    """,
    ("google_adk_cases", "approved"): """
        promise /agent@0/approval:close:call_0_2#0
        promise /agent@0/approval:refund:call_0_0#0
        promise /agent@0/approval:refund:call_0_1#0
        promise /agent@0/promise:open_ticket:call_0_3#0
        step /agent.model#0
        step /agent.model#1
        step /close:call_0_2#0
        step /close:call_0_2#1
        step /open_ticket:call_0_3#0
        step /refund:call_0_0#0
        step /session.create_session#0
        step /session.get_session#0
        step /session.get_session#1
        step /session.get_session#2
        value /uuid4#0
    """,
    ("google_adk_cases", "team"): """
        promise /helper:call_0_0@0/helper@0/approval:refund:call_0_0#0
        step /billing.model#0
        step /billing.model#1
        step /billing.model#2
        step /helper:call_0_0@0/helper.model#0
        step /helper:call_0_0@0/helper.model#1
        step /helper:call_0_0@0/look:call_0_1#0
        step /helper:call_0_0@0/refund:call_0_0#0
        step /helper:call_0_0@0/session.get_session#0
        step /helper:call_0_0@0/session.get_session#1
        step /search:call_1_0#0
        step /search:call_1_0#0/note#0
        step /session.create_session#0
        step /session.get_session#0
        step /triage.model#0
        value /helper:call_0_0@0/uuid4#0
        value /uuid4#0
    """,
    ("google_adk_cases", "graph"): """
        promise /graph@0/promise:adk_request_input:publish#0
        step /joined#0
        step /left#0
        step /prepare#0
        step /publish#0
        step /right#0
        step /search:call_0_0#0
        step /search:call_0_0#0/note#0
        step /session.create_session#0
        step /session.get_session#0
        step /session.get_session#1
        step /writer.model#0
        step /writer.model#1
        value /uuid4#0
    """,
}


@pytest.fixture(scope="module", params=dict.fromkeys(module for module, _ in KEYS))
def zygote(request: pytest.FixtureRequest) -> Iterator[Zygote]:
    zygote = Zygote(f"tests.adapters.one.{request.param}")
    yield zygote
    zygote.close()


def test_no_key_has_a_name_of_a_frameworks_own_tasks(zygote: Zygote) -> None:
    for (module, case), (script, answers) in RUNS.items():
        if module == zygote.cases:
            keys.check(zygote, case, script, KEYS[module, case], answers)
