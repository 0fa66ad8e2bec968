"""Verifies Sealpost webhooks: the raw bytes and the signature header in, a typed event out.

    event = verify_webhook(body, header, [secret])

Everything that is wrong raises a `WebhookVerificationError`, whose message says how to fix it.
"""

from ._errors import (
    WEBHOOK_VERIFICATION_ERROR_CODES,
    WebhookVerificationError,
    WebhookVerificationErrorCode,
    WebhookVerificationErrorKind,
)
from ._event import Analysis, AnalysisFailed, AnalysisSucceeded, WebhookEvent
from ._signature_header import SIGNATURE_HEADER, HeaderValue
from ._verify import read_challenge, verify_signature, verify_webhook

__all__ = [
    "SIGNATURE_HEADER",
    "WEBHOOK_VERIFICATION_ERROR_CODES",
    "Analysis",
    "AnalysisFailed",
    "AnalysisSucceeded",
    "HeaderValue",
    "WebhookEvent",
    "WebhookVerificationError",
    "WebhookVerificationErrorCode",
    "WebhookVerificationErrorKind",
    "read_challenge",
    "verify_signature",
    "verify_webhook",
]
