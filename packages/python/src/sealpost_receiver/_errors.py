from __future__ import annotations

from typing import Dict, Literal, Sequence, Tuple, get_args

WebhookVerificationErrorCode = Literal[
    "header_missing",
    "header_malformed",
    "timestamp_too_old",
    "timestamp_ahead",
    "no_signature_matches",
    "body_not_an_event",
    "body_already_parsed",
    "secret_missing",
    "secret_empty",
    "tolerance_invalid",
    "clock_invalid",
]
"""Stable: safe to compare with. A new code means a new minor version of the library."""

WebhookVerificationErrorKind = Literal["rejected", "misuse"]
"""`rejected`: the request is not a genuine, fresh event; answer 400. `misuse`: the receiver's own code or configuration
is wrong and nothing was verified; answer 500, so that the event is retried once the receiver is fixed."""

WEBHOOK_VERIFICATION_ERROR_CODES: Tuple[WebhookVerificationErrorCode, ...] = get_args(WebhookVerificationErrorCode)
"""Every code, for exhaustive handling."""

_KINDS: Dict[WebhookVerificationErrorCode, WebhookVerificationErrorKind] = {
    "header_missing": "rejected",
    "header_malformed": "rejected",
    "timestamp_too_old": "rejected",
    "timestamp_ahead": "rejected",
    "no_signature_matches": "rejected",
    "body_not_an_event": "rejected",
    "body_already_parsed": "misuse",
    "secret_missing": "misuse",
    "secret_empty": "misuse",
    "tolerance_invalid": "misuse",
    "clock_invalid": "misuse",
}


class WebhookVerificationError(Exception):
    """Why a delivery was not accepted, and how to fix it. Never holds a secret or a signature, so it is safe to log."""

    code: WebhookVerificationErrorCode
    kind: WebhookVerificationErrorKind
    status_code: Literal[400, 500]
    """The status to answer with."""

    def __init__(self, code: WebhookVerificationErrorCode, message: str) -> None:
        super().__init__(code, message)
        self.code = code
        self.kind = _KINDS[code]
        self.status_code = 400 if self.kind == "rejected" else 500

    def __str__(self) -> str:
        return str(self.args[1])


def no_signature_matches(secrets: Sequence[str]) -> WebhookVerificationError:
    """Reveals nothing of the secret but whether it looks like one."""
    looks_damaged = any(secret != secret.strip() or not secret.startswith("whsec_") for secret in secrets)
    return WebhookVerificationError(
        "no_signature_matches",
        "No signature in the header matches this body and secret. Check that the body is the raw bytes as received, "
        "and that the secret belongs to this account and environment and is complete, whsec_ included"
        + (
            "; a secret passed here does not start with whsec_ or has whitespace around it."
            if looks_damaged
            else ". If both are right, the request was not sent by the service."
        ),
    )
