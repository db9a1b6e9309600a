"""What is public of the pipeline: health, configuration, plan, budget. Models in, models out."""

from collections.abc import Mapping
from enum import Enum
from typing import Any

from fastapi import FastAPI
from fastapi.responses import Response

from stream_dp.pipeline.svg import PICTURE_POLICY, draw
from stream_dp.server.models.answer import Health
from stream_dp.server.models.configured import Budget, Pipeline, Plan
from stream_dp.server.view import PublicView

_TAGS: list[str | Enum] = ["configuration"]


def add_configuration(app: FastAPI, view: PublicView) -> None:
    """Add the routes that say what `view` was configured to be."""

    @app.get(
        "/healthz",
        tags=_TAGS,
        summary="Whether the server runs, and whether its engine does",
        operation_id="health",
        response_description="The server runs.",
    )
    async def health() -> Health:
        return Health(status="catching up" if view.catching_up() else "ok")

    @app.get(
        "/api/pipeline",
        tags=_TAGS,
        summary="The public configuration and the series that run",
        operation_id="get_pipeline",
        response_description="The configuration.",
        response_model_exclude_unset=True,
    )
    async def pipeline() -> Pipeline:
        return Pipeline.model_validate(view.pipeline())

    @app.get(
        "/api/plan",
        tags=_TAGS,
        summary="The guarantee with its derivation, and of each series price and expected error",
        operation_id="get_plan",
        response_description="The plan.",
        response_model_exclude_unset=True,
    )
    async def plan() -> Plan:
        return Plan.model_validate(view.plan())

    @app.get(
        "/api/plan.svg",
        tags=_TAGS,
        summary="The derivation as a picture",
        operation_id="get_plan_picture",
        response_description="A picture with a style of its own, for light and dark readers.",
        response_class=Response,
        responses={200: {"content": {"image/svg+xml": {"schema": {"type": "string"}}}}},
    )
    async def plan_picture() -> Response:
        picture = draw(_whole(view.plan()))
        headers = {"content-security-policy": PICTURE_POLICY}
        return Response(picture, media_type="image/svg+xml", headers=headers)

    @app.get(
        "/api/budget",
        tags=_TAGS,
        summary="What was spent, by whom, and what is left",
        operation_id="get_budget",
        response_description="The budget.",
        response_model_exclude_unset=True,
    )
    async def budget() -> Budget:
        return Budget.model_validate(view.budget())


def _whole(plan: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the tree of everything, or of the file's series where that is all there is."""
    tree: Mapping[str, Any] = plan.get("promise", plan).get("derivation", {})
    return tree
