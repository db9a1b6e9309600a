"""What an analyst needs before she asks: who she is to this engine, what she may spend, what there is to ask.

Rules: fields and statistics are public. Of a token only its holder learns anything; ledgers are public.
"""

from collections.abc import Mapping
from enum import Enum
from typing import Any

from fastapi import FastAPI, Security

from stream_dp.server.holders import TokenHolder
from stream_dp.server.models.analyst import Me, Schema
from stream_dp.server.refusals import refusals
from stream_dp.server.tokens import OPERATOR, Token
from stream_dp.server.view import PublicView

_TAGS: list[str | Enum] = ["queries"]


def add_analysts(app: FastAPI, view: PublicView) -> None:
    """Add `/api/schema`, and `/api/me` where there are live series and a token."""

    @app.get(
        "/api/schema",
        tags=_TAGS,
        summary="The declared fields, and the statistics that can be asked of them",
        operation_id="get_schema",
        response_description="What can be asked.",
        response_model_exclude_unset=True,
    )
    async def schema() -> Schema:
        return Schema.model_validate(view.schema())

    if view.live_series is not None and view.token:
        _add_me(app, view)


def _add_me(app: FastAPI, view: PublicView) -> None:
    holder = Security(Token(view))

    @app.get(
        "/api/me",
        tags=_TAGS,
        summary="Whose token this is, until when, and what its holder may spend",
        operation_id="get_me",
        response_description="The holder of the token.",
        responses=refusals(401, 503),
        response_model_exclude_unset=True,
    )
    async def me(holder: TokenHolder = holder) -> Me:
        token = {"token": holder.token, "expires": holder.expires} if holder.token else {}
        account = _account(view.budget(), holder.analyst)
        return Me.model_validate({"analyst": holder.analyst, "epsilon": account, **token})


def _account(budget: Mapping[str, Any], analyst: str) -> Any:
    """The epsilons of an analyst's ledger, or of the pipeline's own."""
    if analyst == OPERATOR:
        return budget["epsilon"]
    return next(each["epsilon"] for each in budget["analysts"] if each["name"] == analyst)
