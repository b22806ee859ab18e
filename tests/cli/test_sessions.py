"""`holdfast sessions`, with a user's module in the current directory."""

from __future__ import annotations

MODULE = """
import holdfast

@holdfast.workflow
async def chat(message: str) -> list[str]:
    session = holdfast.session()
    session.append(message)
    return session.messages

app = holdfast.Holdfast("sqlite:///agent.db", workflows=[chat])
"""


def test_a_session_is_deleted_unless_it_has_a_run_that_has_not_ended(shell):
    (shell.folder / "chats.py").write_text(MODULE, "utf-8")
    shell("start", "chats:app", "chat", '"hello"', "--id", "c1", "--session", "ann")
    assert "'c1'" in shell.refused("sessions", "delete", "ann")
    shell.process("worker", "chats:app", "--until-idle")
    assert "deleted" in shell.process("sessions", "delete", "ann")
    assert "holds nothing" in shell("sessions", "delete", "ann")
