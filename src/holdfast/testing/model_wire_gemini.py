"""How a scripted answer looks on the wire to clients of Google's Gemini."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any

from holdfast.testing.model_wire import Answer, Json, data_event, text_of

# Its clients add the version themselves; the address of the other dialects ends in one.
_PATH = re.compile(r"(/v1)?/v1(beta|alpha)?/models/[^/:]+:(generateContent|streamGenerateContent)")


class Gemini:
    """The model and whether it streams are in a request's path, not in its body."""

    def speaks(self, path: str) -> bool:
        return _PATH.fullmatch(path) is not None

    def streams(self, path: str, body: Json) -> bool:
        return path.endswith(":streamGenerateContent")

    def said(self, body: Json) -> tuple[str, int]:
        contents = body.get("contents", [])
        users = [text_of(one.get("parts")) for one in contents if one.get("role") != "model"]
        turn = sum(one.get("role") == "model" for one in contents)
        return next((text for text in reversed(users) if text), ""), turn

    def whole(self, answer: Answer) -> Json:
        texts = [answer.reply.text] if answer.reply.text or not answer.calls else []
        return self._response(answer, texts, calls=True, ends=True)

    def events(self, answer: Answer) -> Iterator[str]:
        for piece in answer.reply.pieces():
            yield data_event(self._response(answer, [piece]))
        yield data_event(self._response(answer, [], calls=True, ends=True))

    def _response(
        self, answer: Answer, texts: list[str], *, calls: bool = False, ends: bool = False
    ) -> Json:
        parts: list[Json] = [{"text": text} for text in texts]
        for call in answer.calls if calls else ():
            arguments = json.loads(call.arguments)
            parts.append({"functionCall": {"id": call.id, "name": call.name, "args": arguments}})
        if not parts:
            parts.append({"text": ""})
        candidate: dict[str, Any] = {"content": {"role": "model", "parts": parts}, "index": 0}
        response: Json = {
            "candidates": [candidate],
            "modelVersion": answer.model,
            "responseId": f"gemini-{answer.number}",
        }
        if ends:
            candidate["finishReason"] = "STOP"
            response["usageMetadata"] = {
                "promptTokenCount": answer.words,
                "candidatesTokenCount": answer.spoken,
                "totalTokenCount": answer.words + answer.spoken,
            }
        return response
