"""How the two `…/logs` are told in the schema: plain ASGI applications, which no generator looks at."""

from collections.abc import Mapping
from http import HTTPStatus
from typing import Any

from common.problem import CONTENT_TYPE
from console.streams.logs import MOST

Schema = dict[str, Any]
_WHOLE: Schema = {"type": "integer", "minimum": 0, "maximum": MOST}
_ATTEMPT: tuple[Schema, str] = ({**_WHOLE, "minimum": 1}, "Of which attempt; the newest by default.")
_OF_WORKER: dict[str, tuple[Schema, str]] = {
    "tail": (_WHOLE, "Only the last so many lines."),
    "since": (
        {
            "anyOf": [
                {"type": "string", "pattern": "^[0-9]{1,6}[smhd]$"},
                {"type": "string", "format": "date-time"},
            ]
        },
        "Only what came since: a duration before now such as `10m`, or a time with its zone.",
    ),
    "follow": ({"type": "boolean"}, "Go on until the worker has ended."),
    "attempt": _ATTEMPT,
    "offset": (_WHOLE, "From this byte of the attempt's log on, instead of `tail` and `since`."),
}
_HEADERS: Schema = {
    "X-Log-Offset": {"schema": {"type": "integer"}, "description": "Where the answer begins."},
    "X-Log-Attempt": {"schema": {"type": "integer"}, "description": "Of which attempt it is."},
}


def log_streams(problem: Schema) -> dict[str, Schema]:
    """Path → its one operation. `problem`: the schema of a refusal."""
    place = "/api/v1/o/{organization}/w/{workspace}"
    of_worker = _operation("worker", _OF_WORKER, problem)
    of_worker["summary"] = "The worker's log: text, streamed."
    of_worker["responses"]["200"]["headers"] = _HEADERS
    of_run = _operation("run", {"attempt": _ATTEMPT}, problem)
    of_run["summary"] = (
        "The logs of all workers as one text, each line with its worker's name, as they arrived."
    )
    return {
        f"{place}/workers/{{worker}}/logs": {"get": of_worker},
        f"{place}/runs/{{run}}/logs": {"get": of_run},
    }


def _operation(kind: str, queries: Mapping[str, tuple[Schema, str]], problem: Schema) -> Schema:
    paths = [
        {"name": name, "in": "path", "required": True, "schema": {"type": "string"}}
        for name in ("organization", "workspace", kind)
    ]
    asked = [
        {"name": name, "in": "query", "schema": schema, "description": description}
        for name, (schema, description) in queries.items()
    ]
    return {
        "operationId": f"{kind}_logs",
        "tags": [f"{kind}s"],
        "parameters": [*paths, *asked],
        "security": [{"token": []}, {"cookieAuth": []}],
        "responses": {
            "200": {
                "description": "The log; empty while there is none.",
                "content": {"text/plain": {"schema": {"type": "string"}}},
            },
            **{
                str(status): {
                    "description": HTTPStatus(status).phrase,
                    "content": {CONTENT_TYPE: {"schema": problem}},
                }
                for status in (400, 401, 404)
            },
        },
    }
