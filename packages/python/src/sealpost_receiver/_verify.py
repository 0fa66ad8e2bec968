from __future__ import annotations

import hashlib
import hmac
import time
from typing import List, Optional, Sequence, Tuple, Union

from ._errors import WebhookVerificationError, no_signature_matches
from ._event import WebhookEvent, parse_challenge, parse_event
from ._signature_header import Headers, HeaderValue, parse_headers, parse_signature_header
from ._standard_webhooks import standard_key

_TOLERANCE_SECONDS_DEFAULT = 300

# The year 5138 in seconds, March 1973 in milliseconds: anything above is in milliseconds by mistake.
_NOW_SECONDS_MAX = 100_000_000_000

Body = Union[bytes, bytearray, memoryview]

# Not Sequence, which text is, too.
Secrets = Union[List[str], List[Optional[str]], Tuple[Optional[str], ...]]


def verify_signature(
    body: Body,
    header: Union[HeaderValue, Headers],
    secrets: Secrets,
    *,
    tolerance_seconds: float = _TOLERANCE_SECONDS_DEFAULT,
    now_seconds: Optional[float] = None,
) -> None:
    """Returns if the bytes were signed with one of the secrets, less than the tolerance away from now.

    body: the raw request body, before any parser has touched it.
    header: the value of `extract-signature`, as received; None or empty if the request has none. Or all headers of
        the request: where they have no `extract-signature`, those of Standard Webhooks count.
    secrets: a list with the signing secret, or with the new and the old one during a rotation. None in it (an unset
        variable) is refused.
    tolerance_seconds: timestamps this many seconds or more away from now, either way, are refused.
    now_seconds: Unix time in seconds; None: the system's clock.

    Raises WebhookVerificationError with any code except `body_not_an_event`.
    """
    _verified_body(body, header, secrets, tolerance_seconds, now_seconds)


def verify_webhook(
    body: Body,
    header: Union[HeaderValue, Headers],
    secrets: Secrets,
    *,
    tolerance_seconds: float = _TOLERANCE_SECONDS_DEFAULT,
    now_seconds: Optional[float] = None,
) -> WebhookEvent:
    """Verifies a delivery as `verify_signature` does, and returns its event.

    Raises WebhookVerificationError: answer with its `status_code`, 400 for what is not a genuine, fresh event, 500 for
    a mistake of the receiver itself.
    """
    return parse_event(_verified_body(body, header, secrets, tolerance_seconds, now_seconds))


def read_challenge(
    body: Body,
    header: Union[HeaderValue, Headers],
    secrets: Secrets,
    *,
    tolerance_seconds: float = _TOLERANCE_SECONDS_DEFAULT,
    now_seconds: Optional[float] = None,
) -> Optional[str]:
    """Verifies a request as `verify_webhook` does and, if it is a challenge, returns the text to answer with a 200.

    A service may ask whether a receiver wants webhooks before it sends the first. None: it is no challenge, so call
    `verify_webhook`.

    Raises WebhookVerificationError as `verify_webhook`, but never `body_not_an_event`.
    """
    return parse_challenge(_verified_body(body, header, secrets, tolerance_seconds, now_seconds))


def _verified_body(
    body: Body,
    header: Union[HeaderValue, Headers],
    secrets: Secrets,
    tolerance_seconds: float,
    now_seconds: Optional[float],
) -> bytes:
    # The receiver's own settings first, so that a mistake shows on the first request of any kind.
    known = _checked_secrets(secrets)
    now = int(time.time()) if now_seconds is None else now_seconds
    _check_clock(tolerance_seconds, now)
    raw = _checked_body(body)
    parsed = parse_headers(header) if hasattr(header, "items") else parse_signature_header(header)
    _check_timestamp(parsed.timestamp, tolerance_seconds, now)

    message = parsed.signed_prefix.encode("latin-1") + raw
    matches = 0
    for secret in known:
        # Environment variables that are no UTF-8 have surrogates: they match nothing, and break nothing.
        key = standard_key(secret) if parsed.is_standard else secret.encode("utf-8", "surrogatepass")
        if key is None:
            continue
        expected = hmac.new(key, message, hashlib.sha256).digest()
        # Compare every pair, so that timing reveals neither which one matched nor how closely.
        for signature in parsed.signatures:
            matches += hmac.compare_digest(expected, signature)
    if matches == 0:
        raise no_signature_matches(known)
    return raw


def _checked_secrets(secrets: object) -> Sequence[str]:
    """A string is refused, not iterated: each character would become a secret that anyone can guess."""
    if not isinstance(secrets, (list, tuple)) or not secrets:
        raise WebhookVerificationError(
            "secret_missing",
            "No signing secret was passed. Check that it is set in your configuration, and pass it in a list: [secret] "
            "or, during a rotation, [new_secret, old_secret].",
        )
    for secret in secrets:
        if not isinstance(secret, str):
            raise WebhookVerificationError(
                "secret_missing",
                f"A signing secret is {'None' if secret is None else type(secret).__name__}, not a string. "
                "Check that the configuration it comes from is set.",
            )
        # HMAC pads its key with zero bytes, so a key of zero bytes equals the empty key.
        if not secret.replace("\0", "").replace("\ufeff", "").strip():
            raise WebhookVerificationError(
                "secret_empty",
                "A signing secret is empty, so anyone could sign with it. Check that the configuration it comes from "
                "is set.",
            )
    return secrets


def _checked_body(body: object) -> bytes:
    if isinstance(body, (bytes, bytearray, memoryview)):
        return bytes(body)
    raise WebhookVerificationError("body_already_parsed", _body_finding(body))


def _body_finding(body: object) -> str:
    if isinstance(body, str):
        return (
            "The body is a string, but the signature covers the bytes that were sent. Pass the raw bytes: request.body "
            "in Django, request.get_data() in Flask, await request.body() in Starlette and FastAPI."
        )
    if body is None:
        return "The body is None. Read the raw request body before anything else consumes it, and pass its bytes."
    return (
        "The body is already parsed. The signature covers the bytes that were sent, which json.dumps does not restore. "
        "Pass the raw bytes: request.body in Django, request.get_data() in Flask, await request.body() in Starlette "
        "and FastAPI."
    )


def _check_timestamp(timestamp: int, tolerance: float, now: float) -> None:
    """The tolerance is already too far."""
    age = now - timestamp
    if age >= tolerance:
        raise WebhookVerificationError(
            "timestamp_too_old",
            f"The delivery was signed {round(age)} s ago; {tolerance} s or more is refused to prevent replay attacks. "
            "If this happens to fresh deliveries, correct the receiver's clock (NTP), and verify before the request "
            "waits in a queue.",
        )
    if -age >= tolerance:
        raise WebhookVerificationError(
            "timestamp_ahead",
            f"The delivery's timestamp is {round(-age)} s ahead of the receiver's clock; {tolerance} s or more is "
            "refused. Correct the receiver's clock (NTP).",
        )


def _check_clock(tolerance: float, now: float) -> None:
    """NaN compares false with everything: unchecked, it would let any age pass."""
    if not _is_number(tolerance) or not 0 < tolerance < float("inf"):
        raise WebhookVerificationError(
            "tolerance_invalid",
            "tolerance_seconds must be a positive number of seconds. Omit it for the default of 300.",
        )
    if not _is_number(now) or not 0 <= now < _NOW_SECONDS_MAX:
        raise WebhookVerificationError(
            "clock_invalid",
            "now_seconds must be Unix time in seconds, as time.time() returns it. Omit it for the system's clock.",
        )


def _is_number(value: object) -> bool:
    # True is an int, too, and would be a tolerance of one second.
    return isinstance(value, (int, float)) and not isinstance(value, bool)
