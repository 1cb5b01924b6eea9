# SPDX-License-Identifier: Apache-2.0
"""The OpenAPI document, made from the table of endpoints and their types."""

import re
from collections.abc import Sequence
from typing import Any

import msgspec

from trainmover.server.http.endpoints import DIGITS_MAX, Endpoint
from trainmover.server.http.types import Error
from trainmover.version import VERSION

_REF = "#/components/schemas/{name}"
_NUMBER = {"type": "integer", "minimum": 1, "maximum": 10**DIGITS_MAX - 1}
_SAYS = {
    400: "The request cannot be read.",
    401: "No token of the job, and no session.",
    403: "The role is not enough, or the request comes from elsewhere.",
    404: "There is none.",
    413: "The body is too large.",
    431: "The headers are too large.",
    503: "Too many of this role are here.",
}


def document(endpoints: Sequence[Endpoint]) -> dict[str, Any]:
    """OpenAPI 3.1."""
    kinds = [Error, *(e.answer for e in endpoints), *(e.body for e in endpoints if e.body)]
    kinds += [kind for endpoint in endpoints for kind in endpoint.stream]
    schemas, components = msgspec.json.schema_components(kinds, ref_template=_REF)
    schema_of = dict(zip(map(repr, kinds), schemas, strict=True))
    paths: dict[str, dict[str, Any]] = {}
    for endpoint in endpoints:
        here = paths.setdefault(endpoint.path, {})
        here[endpoint.method.lower()] = _operation(endpoint, schema_of)
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "trainmover",
            "version": VERSION,
            "description": "A live run: looking at it, and changing it.",
        },
        "paths": paths,
        "components": {
            "schemas": components,
            "securitySchemes": {
                "token": {
                    "type": "http",
                    "scheme": "bearer",
                    "description": "A token of the job, or a session that POST /session gave.",
                },
            },
        },
    }


def _operation(endpoint: Endpoint, schema_of: dict[str, Any]) -> dict[str, Any]:
    answer = {endpoint.content_type: {"schema": schema_of[repr(endpoint.answer)]}}
    if endpoint.stream:
        carried = [schema_of[repr(kind)] for kind in endpoint.stream]
        answer["text/event-stream"] = {"schema": {"anyOf": carried}}
    refused = {"application/json": {"schema": schema_of[repr(Error)]}}
    operation: dict[str, Any] = {
        "operationId": _name(endpoint),
        "summary": endpoint.summary,
        "responses": {"200": {"description": "Answered.", "content": answer}}
        | {str(c): {"description": _SAYS[c], "content": refused} for c in _refusals(endpoint)},
    }
    operation["security"] = [{"token": []}] if endpoint.role else []
    if endpoint.role:
        operation["x-role"] = endpoint.role.word
    if parameters := [*_in_path(endpoint), *_in_query(endpoint)]:
        operation["parameters"] = parameters
    if endpoint.body is not None:
        content = {"application/json": {"schema": schema_of[repr(endpoint.body)]}}
        operation["requestBody"] = {"required": not endpoint.optional_body, "content": content}
    return operation


def _refusals(endpoint: Endpoint) -> list[int]:
    codes = [403, 431]
    if endpoint.body is not None:
        codes += [400, 413]
    if endpoint.query:
        codes.append(400)
    if endpoint.role is not None:
        codes.append(503)
    if endpoint.role is not None or endpoint.path.endswith("/session"):
        codes.append(401)
    if "{" in endpoint.path:
        codes += [400, 404]
    return sorted(set(codes))


def _in_path(endpoint: Endpoint) -> list[dict[str, Any]]:
    return [
        {"name": name, "in": "path", "required": True, "schema": _NUMBER}
        for name in re.findall(r"{(\w+)}", endpoint.path)
    ]


def _in_query(endpoint: Endpoint) -> list[dict[str, Any]]:
    return [
        {"name": name, "in": "query", "description": what, "schema": schema}
        for name, what, schema in endpoint.query
    ]


def _name(endpoint: Endpoint) -> str:
    words = re.findall(r"[a-z]+", endpoint.path.removeprefix("/api/v1"))
    return "_".join([endpoint.method.lower(), *words])
