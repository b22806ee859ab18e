"""All keys of the journals of some crews and flows: none has a task or function of CrewAI's own."""

from __future__ import annotations

import pytest

from tests.adapters import keys
from tests.adapters.harness import Zygote
from tests.adapters.two.scripts import ALL

CASES = "crewai_cases"
KEYS = {
    "own_run": """
        step /crew-of-one#0
        step /crew-of-one#0/task1.llm#0
        step /crew-of-one#0/task1.llm#1
        step /crew-of-one#0/task1.llm#2
        step /crew-of-one#0/task1.search:call_0_0#0
        step /crew-of-one#0/task1.search:call_0_0#0/_entered@0/note#0
        step /crew-of-one#0/task1.search:call_1_0#0
        step /crew-of-one#0/task1.search:call_1_0#0/_entered@0/note#0
        step /crew-of-one#0/task1.search:call_1_1#0
        step /crew-of-one#0/task1.search:call_1_1#0/_entered@0/note#0
    """,
    "flow": """
        step /Research#0
        step /Research#0/begin#0
        step /Research#0/consult#0
        step /Research#0/consult#0/method@0/crew-of-one#0
        step /Research#0/consult#0/method@0/crew-of-one#0/task1.llm#0
        step /Research#0/consult#0/method@0/crew-of-one#0/task1.llm#1
        step /Research#0/consult#0/method@0/crew-of-one#0/task1.llm#2
        step /Research#0/consult#0/method@0/crew-of-one#0/task1.search:call_0_0#0
        step /Research#0/consult#0/method@0/crew-of-one#0/task1.search:call_0_0#0/_entered@0/note#0
        step /Research#0/consult#0/method@0/crew-of-one#0/task1.search:call_1_0#0
        step /Research#0/consult#0/method@0/crew-of-one#0/task1.search:call_1_0#0/_entered@0/note#0
        step /Research#0/consult#0/method@0/crew-of-one#0/task1.search:call_1_1#0
        step /Research#0/consult#0/method@0/crew-of-one#0/task1.search:call_1_1#0/_entered@0/note#0
        step /Research#0/judge#0
        step /Research#0/look#0
        step /Research#0/publish#0
    """,
    "each": """
        step /crew-of-one#0
        step /crew-of-one#0/task1.llm#0
        step /crew-of-one#0/task1.llm#1
        step /crew-of-one#0/task1.llm#2
        step /crew-of-one#0/task1.search:call_0_0#0
        step /crew-of-one#0/task1.search:call_0_0#0/_entered@0/note#0
        step /crew-of-one#0/task1.search:call_1_0#0
        step /crew-of-one#0/task1.search:call_1_0#0/_entered@0/note#0
        step /crew-of-one#0/task1.search:call_1_1#0
        step /crew-of-one#0/task1.search:call_1_1#0/_entered@0/note#0
        step /crew-of-one#1
        step /crew-of-one#1/task1.llm#0
        step /crew-of-one#1/task1.llm#1
        step /crew-of-one#1/task1.llm#2
        step /crew-of-one#1/task1.search:call_0_0#0
        step /crew-of-one#1/task1.search:call_0_0#0/_entered@0/note#0
        step /crew-of-one#1/task1.search:call_1_0#0
        step /crew-of-one#1/task1.search:call_1_0#0/_entered@0/note#0
        step /crew-of-one#1/task1.search:call_1_1#0
        step /crew-of-one#1/task1.search:call_1_1#0/_entered@0/note#0
    """,
    "single": """
        step /Senior searcher#0
        step /Senior searcher#0/llm#0
        step /Senior searcher#0/llm#1
        step /Senior searcher#0/llm#2
        step /Senior searcher#0/search:call_0_0#0
        step /Senior searcher#0/search:call_0_0#0/_entered@0/note#0
        step /Senior searcher#0/search:call_1_0#0
        step /Senior searcher#0/search:call_1_0#0/_entered@0/note#0
        step /Senior searcher#0/search:call_1_1#0
        step /Senior searcher#0/search:call_1_1#0/_entered@0/note#0
    """,
    "consulting": """
        step /Consults#0
        step /Consults#0/both#0
        step /Consults#0/both#0/Agent.kickoff_async@0/llm#0
        step /Consults#0/both#0/Agent.kickoff_async@0/llm#1
        step /Consults#0/both#0/Agent.kickoff_async@0/search:call_0_0#0
        step /Consults#0/both#0/Agent.kickoff_async@0/search:call_0_0#0/_entered@0/note#0
        step /Consults#0/both#0/to_thread@0/Agent.kickoff@0/llm#0
        step /Consults#0/both#0/to_thread@0/Agent.kickoff@0/llm#1
        step /Consults#0/both#0/to_thread@0/Agent.kickoff@0/search:call_0_0#0
        step /Consults#0/both#0/to_thread@0/Agent.kickoff@0/search:call_0_0#0/_entered@0/note#0
        step /Consults#0/last#0
        step /Consults#0/last#0/helper#0
        step /Consults#0/last#0/helper#0/llm#0
        step /Consults#0/last#0/helper#0/llm#1
        step /Consults#0/last#0/helper#0/search:call_0_0#0
        step /Consults#0/last#0/helper#0/search:call_0_0#0/_entered@0/note#0
        step /Consults#0/third#0
        step /Consults#0/third#0/method@0/llm#0
        step /Consults#0/third#0/method@0/llm#1
        step /Consults#0/third#0/method@0/search:call_0_0#0
        step /Consults#0/third#0/method@0/search:call_0_0#0/_entered@0/note#0
    """,
    "team": """
        step /team#0
        step /team#0/search.delegate_work_to_coworker:call_0_0.llm#0
        step /team#0/search.delegate_work_to_coworker:call_0_0.llm#1
        step /team#0/search.delegate_work_to_coworker:call_0_0.search:call_0_0#0
        step /team#0/search.delegate_work_to_coworker:call_0_0.search:call_0_0#0/_entered@0/note#0
        step /team#0/search.llm#0
        step /team#0/search.llm#1
        step /team#0/write.llm#0
    """,
    "asking": """
        promise /Letter#0/approval:review#0
        promise /Letter#0/approval:review%232#0
        promise /Letter#0/write#0/method@0/promise:write#0
        step /Letter#0
        step /Letter#0/llm#0
        step /Letter#0/review#0
        step /Letter#0/review#1
        step /Letter#0/send#0
        step /Letter#0/write#0
        step /Letter#0/write#1
    """,
}


@pytest.mark.parametrize("case", KEYS)
def test_no_key_has_a_name_of_a_frameworks_own_tasks(zygote: Zygote, case: str) -> None:
    script, answers = ALL[case]
    keys.check(zygote, case, script, KEYS[case], answers)
