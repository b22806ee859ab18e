"""The scripted model answers as written, also when a call is made again, and keeps count."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
from functools import partial

import httpx
import pytest

from holdfast.testing.model_server import Asked, ModelServer, Reply, load_script

SECONDS_MAX = 120

get = partial(httpx.get, timeout=SECONDS_MAX)
post = partial(httpx.post, timeout=SECONDS_MAX)


def ask(model: ModelServer, *said: str, **options) -> httpx.Response:
    """Says the messages in turn, user first."""
    roles = ["user", "assistant"] * len(said)
    messages = [{"role": r, "content": c} for r, c in zip(roles, said, strict=False)]
    headers = options.pop("headers", {})
    body = {"model": "tiny", "messages": messages, **options}
    url = f"{model.url}/chat/completions"
    return post(url, json=body, headers=headers)


def text(response: httpx.Response) -> str:
    response.raise_for_status()
    return response.json()["choices"][0]["message"]["content"]


def test_the_prompt_chooses_the_reply():
    with ModelServer({"sky": "blue", "grass": "green"}) as model:
        assert text(ask(model, "What colour is the grass?")) == "green"
        assert text(ask(model, "And the sky?")) == "blue"


def test_only_the_last_user_message_is_the_prompt():
    with ModelServer({"sky": "blue", "grass": "green"}) as model:
        assert text(ask(model, "the sky?", "blue", "the grass?")) == "green"


def test_a_line_with_several_replies_plays_them_one_after_the_other_and_keeps_the_last():
    with ModelServer({"x": ["one", "two"]}) as model:
        assert [text(ask(model, "x")) for _ in range(3)] == ["one", "two", "two"]


def test_a_reply_by_turn_is_the_same_when_the_call_is_made_again():
    with ModelServer(["hello", "goodbye"]) as model:
        assert [text(ask(model, "hi")) for _ in range(2)] == ["hello", "hello"]
        assert text(ask(model, "hi", "hello", "bye")) == "goodbye"


def test_a_response_may_go_on_from_one_that_the_server_keeps():
    def respond(said: str, before: str | None = None) -> dict:
        body = {"model": "tiny", "input": said, "previous_response_id": before}
        return post(f"{model.url}/responses", json=body).raise_for_status().json()

    with ModelServer(["hello", "how are you", "goodbye"]) as model:
        answers = [respond("hi")]
        answers += [respond("well", answers[0]["id"]) for _ in range(2)]
        answers.append(respond("bye", answers[1]["id"]))
    said = [one["output"][0]["content"][0]["text"] for one in answers]
    assert said == ["hello", "how are you", "how are you", "goodbye"]


def test_a_function_may_write_the_replies():
    with ModelServer(lambda asked: f"{asked.number}: {asked.prompt}") as model:
        assert text(ask(model, "hi")) == "1: hi"


def test_a_prompt_that_nobody_scripted_is_an_error_that_names_it():
    with ModelServer({"sky": "blue"}) as model:
        answer = ask(model, "the sea?")
    assert answer.status_code == 400
    assert "the sea?" in answer.json()["error"]["message"]


def test_tool_calls_come_as_openai_sends_them():
    with ModelServer([Reply(tool_calls=[("search", {"q": "trains"})])]) as model:
        choice = ask(model, "go").json()["choices"][0]
    assert choice["finish_reason"] == "tool_calls"
    function = choice["message"]["tool_calls"][0]["function"]
    assert (function["name"], json.loads(function["arguments"])) == ("search", {"q": "trains"})


def test_a_stream_adds_up_to_the_reply():
    with ModelServer(["one\ntwo"]) as model:
        answer = ask(model, "go", stream=True)
    assert answer.headers["content-type"] == "text/event-stream"
    lines = [line.removeprefix("data: ") for line in answer.text.split("\n\n") if line]
    assert lines[-1] == "[DONE]"
    deltas = [json.loads(line)["choices"][0]["delta"] for line in lines[:-1]]
    assert "".join(delta.get("content", "") for delta in deltas) == "one\ntwo"


def test_a_failure_on_demand_comes_first_and_passes():
    with ModelServer({"sky": "blue", "grass": "green"}) as model:
        model.fail(429, retry_after=1.5, times=2, match="sky")
        answers = [ask(model, prompt) for prompt in ("grass", "sky", "sky", "sky")]
    assert [answer.status_code for answer in answers] == [200, 429, 429, 200]
    assert answers[1].headers["retry-after"] == "1.5"


def test_a_reply_may_be_a_failure():
    with ModelServer({"sky": [Reply(status=500), "blue"]}) as model:
        assert [ask(model, "sky").status_code for _ in range(2)] == [500, 200]


def test_every_request_is_kept_with_its_key_and_what_became_of_it():
    with ModelServer({"sky": "blue"}) as model:
        model.fail(500)
        for _ in range(2):
            ask(model, "the sky?", headers={"Idempotency-Key": "k1"})
        log = get(f"{model.address}/requests").json()
    assert [(r["number"], r["status"], r["idempotency_key"]) for r in log] == [
        (1, 500, "k1"),
        (2, 200, "k1"),
    ]
    assert log[0]["prompt"] == "the sky?"
    assert log[0]["at"] <= log[0]["answered_at"]


def test_a_request_in_flight_is_in_the_log_and_can_be_held():
    arrived, go_on = threading.Event(), threading.Event()

    def hold(asked: Asked) -> None:
        assert asked.status is None
        arrived.set()
        assert go_on.wait(SECONDS_MAX)

    with ModelServer(["done"], on_request=hold) as model:
        answers: list[str] = []
        caller = threading.Thread(target=lambda: answers.append(text(ask(model, "go"))))
        caller.start()
        assert arrived.wait(SECONDS_MAX)
        assert [asked.status for asked in model.requests] == [None]
        go_on.set()
        caller.join(SECONDS_MAX)
        assert answers == ["done"]


def test_a_caller_that_hung_up_is_noted():
    arrived, hung_up, noted = threading.Event(), threading.Event(), threading.Event()

    def hold(asked: Asked) -> None:
        arrived.set()
        assert hung_up.wait(SECONDS_MAX)

    class Noting(ModelServer):
        def answering(self, request, response, *, hung_up):
            super().answering(request, response, hung_up=hung_up)
            noted.set()

    with Noting(["done"], on_request=hold) as model:
        url = f"{model.url}/chat/completions"
        program = f"import httpx; httpx.post({url!r}, json={{}}, timeout={SECONDS_MAX})"
        caller = subprocess.Popen([sys.executable, "-c", program])
        assert arrived.wait(SECONDS_MAX)
        caller.kill()
        caller.wait()
        hung_up.set()
        assert noted.wait(SECONDS_MAX)
        assert model.requests[0].hung_up


def test_bad_requests_are_refused():
    with ModelServer(["x"]) as model:
        assert post(f"{model.url}/chat/completions", content=b"{").status_code == 400
        assert get(f"{model.address}/nowhere").status_code == 404


def test_a_server_in_a_process_of_its_own_is_driven_over_http(tmp_path):
    script = tmp_path / "script.json"
    script.write_text(json.dumps({"sky": ["blue", {"text": "grey"}]}))
    command = [sys.executable, "-m", "holdfast.testing.model_server", "--script", str(script)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            address = process.stdout.readline().strip()
            post(f"{address}/fail", json={"status": 503}).raise_for_status()
            body = {"messages": [{"role": "user", "content": [{"type": "text", "text": "sky"}]}]}
            url = f"{address}/v1/chat/completions"
            answers = [post(url, json=body) for _ in range(3)]
            assert answers[0].status_code == 503
            assert [text(answer) for answer in answers[1:]] == ["blue", "grey"]
            assert len(get(f"{address}/requests").json()) == 3
        finally:
            process.kill()


@pytest.mark.parametrize("data", [["a", {"text": "b"}], {"p": ["a", {"text": "b"}]}])
def test_a_script_is_read_from_json(data):
    script = load_script(data)
    replies = script["p"] if isinstance(script, dict) else script
    assert replies == ["a", Reply(text="b")]
