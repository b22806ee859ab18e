"""Credentials: where ADK sends people to log in, and what it gets for what they bring back.

The address holds a random state, which the answer must carry back, and what is brought back is good
for one exchange. So both are journaled, without the secrets of the program itself. In a tool they
are part of its step.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

from google.adk.auth.auth_credential import AuthCredential
from google.adk.auth.auth_tool import AuthConfig
from google.adk.auth.exchanger.base_credential_exchanger import ExchangeResult

import holdfast
from holdfast.adapters._shared import as_step
from holdfast.adapters.google_adk.options import active, claim


def same_requests(generate: Callable[[Any], AuthConfig]) -> Callable[[Any], AuthConfig]:
    """Around what makes a request for credentials."""

    def request(self: Any) -> AuthConfig:
        now = active()
        if now is None or not now.place.is_near:
            return generate(self)

        def make() -> Any:
            return _plain(generate(self))

        name = f"auth.request:{self.auth_config.credential_key}"
        recorded = now.place.claim(lambda: holdfast.once(make, name=name))
        return AuthConfig.model_validate_json(json.dumps(recorded))

    return request


def exchanged_once(exchange: Callable[..., Any]) -> Callable[..., Any]:
    """Around what exchanges a credential for a token."""

    async def call(
        self: Any, auth_credential: AuthCredential, auth_scheme: Any = None
    ) -> ExchangeResult:
        now, given = active(), auth_credential.oauth2
        if now is None or not now.place.is_near or given is None or given.access_token:
            found: ExchangeResult = await exchange(self, auth_credential, auth_scheme)
            return found

        async def work() -> Any:
            credential, done = await exchange(
                self, auth_credential.model_copy(deep=True), auth_scheme
            )
            assert credential.oauth2 is not None
            credential.oauth2.client_secret = None
            return [_plain(credential), done]

        recorded, done = await claim(now, lambda: as_step("auth.exchange", work))
        credential = AuthCredential.model_validate_json(json.dumps(recorded))
        assert credential.oauth2 is not None
        credential.oauth2.client_secret = given.client_secret
        return ExchangeResult(credential, done)

    return call


def _plain(value: Any) -> Any:
    return value.model_dump(mode="json", by_alias=True, exclude_none=True)
