"""How a scripted answer looks on the wire to clients of OpenAI and Anthropic.

Each dialect reads a request (what was said last, and how often the model has spoken before), and
writes an answer whole or as the events of a stream. Ids are made from the turn, so that a call
which is made again gets the same ones.
"""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

Json = dict[str, Any]


@dataclass(frozen=True, kw_only=True)
class Reply:
    text: str = ""
    tool_calls: Sequence[tuple[str, Mapping[str, Any]]] = ()  # names and arguments
    status: int = 200
    retry_after: float | None = None  # seconds
    delay: float = 0.0  # seconds until the answer
    chunk: int = 0  # characters of the text in a streamed piece; 0: a line
    code: str | None = None  # of an error, such as context_length_exceeded

    def pieces(self) -> list[str]:
        if not self.chunk:
            return self.text.splitlines(keepends=True)
        return [self.text[at : at + self.chunk] for at in range(0, len(self.text), self.chunk)]


@dataclass(frozen=True)
class Call:
    id: str
    name: str
    arguments: str


@dataclass(frozen=True)
class Answer:
    """A reply to a certain request."""

    number: int  # of the request
    turn: int
    at: int  # seconds since 1970
    model: str
    reply: Reply
    words: int  # in the prompt, which stand for its tokens
    tells_usage: bool = False  # at the end of a stream of chat completions

    @property
    def calls(self) -> list[Call]:
        return [
            Call(f"call_{self.turn}_{n}", name, json.dumps(dict(arguments)))
            for n, (name, arguments) in enumerate(self.reply.tool_calls)
        ]

    @property
    def spoken(self) -> int:
        return len(self.reply.text.split()) + 5 * len(self.reply.tool_calls)


class Dialect(Protocol):
    def speaks(self, path: str) -> bool: ...

    def streams(self, path: str, body: Json) -> bool: ...

    def said(self, body: Json) -> tuple[str, int]:
        """What the user said last, and how often the model has spoken before."""
        ...

    def whole(self, answer: Answer) -> Json: ...

    def events(self, answer: Answer) -> Iterator[str]:
        """The lines of a stream of server-sent events, each event as one string."""
        ...


class _AtPath:
    """Says in a request's body whether it streams."""

    path: str

    def speaks(self, path: str) -> bool:
        return path == self.path

    def streams(self, path: str, body: Json) -> bool:
        return bool(body.get("stream"))


class ChatCompletions(_AtPath):
    path = "/v1/chat/completions"

    def said(self, body: Json) -> tuple[str, int]:
        messages = body.get("messages", [])
        users = [text_of(m.get("content")) for m in messages if m.get("role") == "user"]
        turn = sum(message.get("role") == "assistant" for message in messages)
        return (users[-1] if users else ""), turn

    def whole(self, answer: Answer) -> Json:
        message: Json = {"role": "assistant", "content": answer.reply.text or None}
        if not answer.calls:
            message["content"] = answer.reply.text
        else:
            message["tool_calls"] = [self._call(call) for call in answer.calls]
        choice = {"index": 0, "message": message, "finish_reason": self._finish(answer)}
        return {
            **self._frame(answer, "chat.completion"),
            "choices": [choice],
            "usage": self._usage(answer),
        }

    def events(self, answer: Answer) -> Iterator[str]:
        deltas: list[Json] = [{"role": "assistant", "content": ""}]
        deltas += [{"content": piece} for piece in answer.reply.pieces()]
        for n, call in enumerate(answer.calls):
            deltas.append({"tool_calls": [{"index": n, **self._call(call)}]})
        for delta in deltas:
            yield self._chunk(answer, delta, None)
        yield self._chunk(answer, {}, self._finish(answer))
        if answer.tells_usage:
            last = self._frame(answer, "chat.completion.chunk")
            yield data_event({**last, "choices": [], "usage": self._usage(answer)})
        yield "data: [DONE]\n\n"

    def _chunk(self, answer: Answer, delta: Json, finish: str | None) -> str:
        choice = {"index": 0, "delta": delta, "finish_reason": finish}
        return data_event({**self._frame(answer, "chat.completion.chunk"), "choices": [choice]})

    def _frame(self, answer: Answer, kind: str) -> Json:
        return {
            "id": f"chatcmpl-{answer.number}",
            "object": kind,
            "created": answer.at,
            "model": answer.model,
        }

    def _call(self, call: Call) -> Json:
        function = {"name": call.name, "arguments": call.arguments}
        return {"id": call.id, "type": "function", "function": function}

    def _finish(self, answer: Answer) -> str:
        return "tool_calls" if answer.calls else "stop"

    def _usage(self, answer: Answer) -> Json:
        return {
            "prompt_tokens": answer.words,
            "completion_tokens": answer.spoken,
            "total_tokens": answer.words + answer.spoken,
        }


class Responses(_AtPath):
    path = "/v1/responses"

    def said(self, body: Json) -> tuple[str, int]:
        given = body.get("input", "")
        # A conversation may go on from an answer that the server keeps: its id says how far it is.
        before = str(body.get("previous_response_id") or "").rpartition("_")[2]
        spoken = int(before) + 1 if before.isdigit() else 0
        if isinstance(given, str):
            return given, spoken
        users = [text_of(item.get("content")) for item in given if item.get("role") == "user"]
        by_model = [_is_models(item) for item in given]
        # What follows one another without anything in between was said in one go.
        turn = sum(mine for mine, _ in itertools.groupby(by_model))
        return (users[-1] if users else ""), spoken + turn

    def whole(self, answer: Answer) -> Json:
        return self._response(answer, "completed", self._items(answer))

    def events(self, answer: Answer) -> Iterator[str]:
        count = itertools.count()

        def event(kind: str, **fields: Any) -> str:
            return _named({"type": kind, "sequence_number": next(count), **fields})

        begun = self._response(answer, "in_progress", [])
        yield event("response.created", response=begun)
        yield event("response.in_progress", response=begun)
        items = self._items(answer)
        for index, item in enumerate(items):
            place = {"output_index": index, "item_id": item["id"]}
            if item["type"] == "message":
                yield from self._text_events(event, answer, index, item, place)
                continue
            empty = {**item, "arguments": "", "status": "in_progress"}
            yield event("response.output_item.added", output_index=index, item=empty)
            arguments = item["arguments"]
            yield event("response.function_call_arguments.delta", delta=arguments, **place)
            yield event(
                "response.function_call_arguments.done",
                arguments=arguments,
                name=item["name"],
                **place,
            )
            yield event("response.output_item.done", output_index=index, item=item)
        yield event("response.completed", response=self._response(answer, "completed", items))

    def _text_events(
        self, event: Any, answer: Answer, index: int, item: Json, place: Json
    ) -> Iterator[str]:
        part = {"content_index": 0, **place}
        content = item["content"][0]
        empty = {**item, "content": [], "status": "in_progress"}
        yield event("response.output_item.added", output_index=index, item=empty)
        yield event("response.content_part.added", part={**content, "text": ""}, **part)
        for piece in answer.reply.pieces():
            yield event("response.output_text.delta", delta=piece, logprobs=[], **part)
        yield event("response.output_text.done", text=content["text"], logprobs=[], **part)
        yield event("response.content_part.done", part=content, **part)
        yield event("response.output_item.done", output_index=index, item=item)

    def _items(self, answer: Answer) -> list[Json]:
        items: list[Json] = []
        if answer.reply.text or not answer.calls:
            text = {"type": "output_text", "text": answer.reply.text, "annotations": []}
            items.append(
                {
                    "type": "message",
                    "id": f"msg_{answer.turn}",
                    "status": "completed",
                    "role": "assistant",
                    "content": [{**text, "logprobs": []}],
                }
            )
        for n, call in enumerate(answer.calls):
            items.append(
                {
                    "type": "function_call",
                    "id": f"fc_{answer.turn}_{n}",
                    "call_id": call.id,
                    "name": call.name,
                    "arguments": call.arguments,
                    "status": "completed",
                }
            )
        return items

    def _response(self, answer: Answer, status: str, output: list[Json]) -> Json:
        usage = {
            "input_tokens": answer.words,
            "input_tokens_details": {"cached_tokens": 0, "cache_write_tokens": 0},
            "output_tokens": answer.spoken,
            "output_tokens_details": {"reasoning_tokens": 0},
            "total_tokens": answer.words + answer.spoken,
        }
        return {
            "id": f"resp_{answer.number}_{answer.turn}",
            "object": "response",
            "created_at": answer.at,
            "model": answer.model,
            "status": status,
            "output": output,
            "error": None,
            "incomplete_details": None,
            "instructions": None,
            "metadata": {},
            "parallel_tool_calls": True,
            "temperature": 1.0,
            "tool_choice": "auto",
            "tools": [],
            "top_p": 1.0,
            "usage": usage if status == "completed" else None,
        }


class Messages(_AtPath):
    """Anthropic's."""

    path = "/v1/messages"

    def said(self, body: Json) -> tuple[str, int]:
        messages = body.get("messages", [])
        users = [text_of(m.get("content")) for m in messages if m.get("role") == "user"]
        turn = sum(message.get("role") == "assistant" for message in messages)
        return next((text for text in reversed(users) if text), ""), turn

    def whole(self, answer: Answer) -> Json:
        return {
            **self._frame(answer),
            "content": self._blocks(answer),
            "stop_reason": self._reason(answer),
            "usage": {"input_tokens": answer.words, "output_tokens": answer.spoken},
        }

    def events(self, answer: Answer) -> Iterator[str]:
        usage = {"input_tokens": answer.words, "output_tokens": 0}
        begun = {**self._frame(answer), "content": [], "stop_reason": None, "usage": usage}
        yield _named({"type": "message_start", "message": begun})
        for index, block in enumerate(self._blocks(answer)):
            if block["type"] == "text":
                empty = {**block, "text": ""}
                deltas: list[Json] = [
                    {"type": "text_delta", "text": piece} for piece in answer.reply.pieces()
                ]
            else:
                empty = {**block, "input": {}}
                arguments = json.dumps(block["input"])
                deltas = [{"type": "input_json_delta", "partial_json": arguments}]
            yield _named({"type": "content_block_start", "index": index, "content_block": empty})
            for delta in deltas:
                yield _named({"type": "content_block_delta", "index": index, "delta": delta})
            yield _named({"type": "content_block_stop", "index": index})
        end = {"stop_reason": self._reason(answer), "stop_sequence": None}
        usage = {"output_tokens": answer.spoken}
        yield _named({"type": "message_delta", "delta": end, "usage": usage})
        yield _named({"type": "message_stop"})

    def _frame(self, answer: Answer) -> Json:
        return {
            "id": f"msg_{answer.number}",
            "type": "message",
            "role": "assistant",
            "model": answer.model,
            "stop_sequence": None,
        }

    def _blocks(self, answer: Answer) -> list[Json]:
        blocks: list[Json] = []
        if answer.reply.text or not answer.calls:
            blocks.append({"type": "text", "text": answer.reply.text})
        for call in answer.calls:
            arguments = json.loads(call.arguments)
            blocks.append(
                {"type": "tool_use", "id": call.id, "name": call.name, "input": arguments}
            )
        return blocks

    def _reason(self, answer: Answer) -> str:
        return "tool_use" if answer.calls else "end_turn"


def text_of(content: Any) -> str:
    """A message's content is a string, or a list of parts."""
    if isinstance(content, list):
        return "".join(part.get("text") or "" for part in content if isinstance(part, dict))
    return content or ""


def _is_models(item: Json) -> bool:
    models = item.get("type") in ("function_call", "reasoning")
    return models or item.get("role") == "assistant"


def data_event(value: Json) -> str:
    return f"data: {json.dumps(value)}\n\n"


def _named(value: Json) -> str:
    return f"event: {value['type']}\n{data_event(value)}"
