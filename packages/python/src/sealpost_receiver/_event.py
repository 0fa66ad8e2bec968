from __future__ import annotations

import json
import re
from typing import Any, Dict, Literal, NoReturn, Optional, TypedDict, Union

from ._errors import WebhookVerificationError

Analysis = Dict[str, Any]
"""The analysis as `GET /v1/analyses/{id}` returns it; `id` and `status` are text. `example` is true in test events
only."""


class AnalysisSucceeded(TypedDict):
    """An analysis whose `data["status"]` is `"succeeded"`."""

    id: str
    """The delivery's id, the same for every attempt and replay: use it to handle an event once."""
    event: Literal["analysis.succeeded"]
    created_at: str
    """ISO 8601, UTC, with milliseconds."""
    data: Analysis


class AnalysisFailed(TypedDict):
    """An analysis whose `data["status"]` is `"failed"`; its other members are those of `AnalysisSucceeded`."""

    id: str
    event: Literal["analysis.failed"]
    created_at: str
    data: Analysis


WebhookEvent = Union[AnalysisSucceeded, AnalysisFailed]

_STATUS_OF_EVENT = {"analysis.succeeded": "succeeded", "analysis.failed": "failed"}

# Its exact form, so that a receiver without a JSON parser recognizes it as surely.
_CHALLENGE = re.compile(rb'\{"type":"webhook\.challenge","challenge":"([0-9A-Za-z-]{1,128})"\}')


def parse_challenge(body: bytes) -> Optional[str]:
    """The text to answer; None: the body is no challenge."""
    match = _CHALLENGE.fullmatch(body)
    return None if match is None else match[1].decode("ascii")


def parse_event(body: bytes) -> WebhookEvent:
    """Raises `body_not_an_event`."""
    if parse_challenge(body) is not None:
        raise WebhookVerificationError(
            "body_not_an_event",
            "The signature is valid, but the body is a challenge, which asks whether this receiver wants webhooks. "
            "Pass the same input to read_challenge first, and answer 200 with the text that it returns.",
        )
    event = _parse_json(body)
    if not isinstance(event, dict):
        raise _not_an_event("it is not a JSON object")
    for member in ("id", "created_at"):
        if not _is_text(event.get(member)):
            raise _not_an_event(f"{member} is not a non-empty string")
    name, data = event.get("event"), event.get("data")
    status = _STATUS_OF_EVENT.get(name) if isinstance(name, str) else None
    if status is None:
        raise _not_an_event("event is neither analysis.succeeded nor analysis.failed")
    if not isinstance(data, dict) or not _is_text(data.get("id")):
        raise _not_an_event("data is not an analysis with an id")
    if data.get("status") != status:
        raise _not_an_event(f'data.status is not "{status}", which its event requires')
    return event  # type: ignore[return-value]


def _parse_json(body: bytes) -> Any:
    try:
        text = body.decode("utf-8")
        return json.loads(text, parse_int=_number, parse_constant=_refuse_constant)
    except RecursionError:
        raise _not_an_event("it is nested too deeply for Python's parser") from None
    except ValueError:
        # Without its cause, which would quote the body: customer data does not belong in logs.
        raise _not_an_event("it is not UTF-8 JSON") from None


# What Python converts to an int at all is limited, to 4,300 digits by default.
_DIGITS_MAX = 4_000


def _number(text: str) -> Union[int, float]:
    return int(text) if len(text) <= _DIGITS_MAX else float(text)


def _refuse_constant(name: str) -> NoReturn:
    """Python's parser takes NaN and Infinity, which JSON has not."""
    raise ValueError(name)


def _is_text(value: object) -> bool:
    return isinstance(value, str) and value != ""


def _not_an_event(finding: str) -> WebhookVerificationError:
    return WebhookVerificationError(
        "body_not_an_event",
        "The signature is valid, but the body is not an event known to this version of the library: "
        f"{finding}. Update the library, or use verify_signature to check the bytes alone.",
    )
