from __future__ import annotations

import re
from typing import List, NamedTuple, Optional, Sequence, Union

from ._errors import WebhookVerificationError

SIGNATURE_HEADER = "extract-signature"
"""The request header that carries `t=<Unix seconds>,v1=<hex>[,v1=<hex>]`."""

HeaderValue = Union[str, bytes, Sequence[Union[str, bytes]], None]
"""A header's value as frameworks represent it: text, the bytes of ASGI, or a list of all that were sent."""


class ParsedSignatureHeader(NamedTuple):
    timestamp_text: str
    """Exactly as in the header, because this text was signed."""
    signatures: Sequence[str]
    """At least one, each 64 lowercase hex digits."""


# Two signatures take 150 characters; the rest is room for future schemes.
_HEADER_CHARACTERS_MAX = 8_192
# A rotation needs two.
_SIGNATURES_MAX = 16

_ITEM = re.compile(r"([a-z0-9_]+)=([!-+\--~]*)")
# One spelling per number: no sign, no leading zeros, nothing beyond 2^53.
_TIMESTAMP = re.compile(r"0|[1-9][0-9]{0,14}")
_SIGNATURE = re.compile(r"[0-9a-f]{64}")


def parse_signature_header(value: HeaderValue) -> ParsedSignatureHeader:
    """Strict: leniency helps forgers. Raises `header_missing` or `header_malformed`."""
    timestamp_text: Optional[str] = None
    signatures: List[str] = []
    for item in _single_header(value).split(","):
        match = _ITEM.fullmatch(item)
        if match is None:
            raise _malformed("an item is not name=value")
        scheme, text = match.groups()
        if scheme == "t":
            # Never guess which one was signed.
            if timestamp_text is not None:
                raise _malformed("it has more than one t")
            if not _TIMESTAMP.fullmatch(text):
                raise _malformed("t is not a whole number of seconds in decimal digits")
            timestamp_text = text
        elif scheme == "v1":
            if not _SIGNATURE.fullmatch(text):
                raise _malformed("a v1 is not 64 lowercase hex digits")
            signatures.append(text)
            if len(signatures) > _SIGNATURES_MAX:
                raise _malformed(f"it has more than {_SIGNATURES_MAX} v1")
        # Other schemes are future ones beside v1: ignored.
    if timestamp_text is None:
        raise _malformed("it has no t")
    if not signatures:
        raise _malformed("it has no v1")
    return ParsedSignatureHeader(timestamp_text, signatures)


def _single_header(value: object) -> str:
    header = value
    if isinstance(value, (list, tuple)):
        if len(value) > 1:
            raise _malformed("it was sent more than once")
        header = value[0] if value else None
    if isinstance(header, bytes):
        header = header.decode("latin-1")
    if header is None or header == "":
        raise WebhookVerificationError(
            "header_missing",
            f"The request has no {SIGNATURE_HEADER} header. Pass the header's value as received, and check that no "
            "proxy in front of the receiver removes it. A request sent without it is not from the service.",
        )
    if not isinstance(header, str):
        raise _malformed(f"it is a {type(header).__name__}, not a string")
    if len(header) > _HEADER_CHARACTERS_MAX:
        raise _malformed(f"it is {len(header)} characters long; the limit is {_HEADER_CHARACTERS_MAX}")
    return header


def _malformed(finding: str) -> WebhookVerificationError:
    return WebhookVerificationError(
        "header_malformed",
        f"The {SIGNATURE_HEADER} header is not t=<seconds>,v1=<hex>: {finding}. Pass the header's value unchanged. "
        "A request that arrived like this is not from the service.",
    )
