from __future__ import annotations

import re
from typing import Any, List, NamedTuple, Optional, Protocol, Sequence, Union

from . import _standard_webhooks as standard
from ._errors import WebhookVerificationError

SIGNATURE_HEADER = "extract-signature"
"""The request header that carries `t=<Unix seconds>,v1=<hex>[,v1=<hex>]`."""

HeaderValue = Union[str, bytes, Sequence[Union[str, bytes]], None]
"""A header's value as frameworks represent it: text, the bytes of ASGI, or a list of all that were sent."""


class Headers(Protocol):
    """All headers of a request, as frameworks and dict have them."""

    def items(self) -> Any: ...



class ParsedSignatureHeader(NamedTuple):
    signed_prefix: str
    """What was signed before the body, exactly as in the header."""
    is_standard: bool
    """Whether the key is what the secret's base64 stands for."""
    timestamp: int
    signatures: Sequence[bytes]
    """At least one, each 32 bytes."""


# Two signatures take 150 characters; the rest is room for future schemes.
_HEADER_CHARACTERS_MAX = 8_192
# A rotation needs two.
_SIGNATURES_MAX = 16

_ITEM = re.compile(r"([a-z0-9_]+)=([!-+\--~]*)")
# One spelling per number: no sign, no leading zeros, nothing beyond 2^53.
_TIMESTAMP = re.compile(r"0|[1-9][0-9]{0,14}")
_SIGNATURE = re.compile(r"[0-9a-f]{64}")


def parse_headers(headers: Headers) -> ParsedSignatureHeader:
    """The service's own signature if there is one, else that of Standard Webhooks. Names in any case."""
    given = [(_text(name).lower(), value) for name, value in headers.items()]

    def find(name: str) -> List[Union[str, bytes]]:
        return _values(value for key, value in given if key == name)

    own, signature = find(SIGNATURE_HEADER), find(standard.SIGNATURE_HEADER)
    if any(own) or not any(signature):
        return parse_signature_header(own)
    message_id = _single_header(find(standard.ID_HEADER), standard.ID_HEADER)
    timestamp_text = _single_header(find(standard.TIMESTAMP_HEADER), standard.TIMESTAMP_HEADER)
    if not _TIMESTAMP.fullmatch(timestamp_text):
        raise _malformed("it is not in decimal digits", standard.TIMESTAMP_HEADER)
    if not standard.is_standard_id(message_id):
        raise _malformed("it is not 1 to 256 visible characters without a full stop", standard.ID_HEADER)
    signatures = standard.parse_standard_signatures(_single_header(signature, standard.SIGNATURE_HEADER))
    if isinstance(signatures, str):
        raise _malformed(signatures, standard.SIGNATURE_HEADER)
    return ParsedSignatureHeader(f"{message_id}.{timestamp_text}.", True, int(timestamp_text), signatures)


def _values(found: Any) -> List[Union[str, bytes]]:
    """All of them, of which each may be a list, or None."""
    lists = [value if isinstance(value, (list, tuple)) else [value] for value in found]
    return [value for values in lists for value in values if value is not None]


def _text(value: Any) -> str:
    return value.decode("latin-1") if isinstance(value, bytes) else str(value)


def parse_signature_header(value: HeaderValue) -> ParsedSignatureHeader:
    """Strict: leniency helps forgers. Raises `header_missing` or `header_malformed`."""
    timestamp_text: Optional[str] = None
    signatures: List[bytes] = []
    for item in _single_header(value, SIGNATURE_HEADER).split(","):
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
            signatures.append(bytes.fromhex(text))
            if len(signatures) > _SIGNATURES_MAX:
                raise _malformed(f"it has more than {_SIGNATURES_MAX} v1")
        # Other schemes are future ones beside v1: ignored.
    if timestamp_text is None:
        raise _malformed("it has no t")
    if not signatures:
        raise _malformed("it has no v1")
    return ParsedSignatureHeader(f"{timestamp_text}.", False, int(timestamp_text), signatures)


def _single_header(value: object, name: str) -> str:
    header = value
    if isinstance(value, (list, tuple)):
        if len(value) > 1:
            raise _malformed("it was sent more than once", name)
        header = value[0] if value else None
    if isinstance(header, bytes):
        header = header.decode("latin-1")
    if header is None or header == "":
        raise WebhookVerificationError(
            "header_missing",
            f"The request has no {name} header. Pass the header's value as received, and check that no "
            "proxy in front of the receiver removes it. A request sent without it is not from the service.",
        )
    if not isinstance(header, str):
        raise _malformed(f"it is a {type(header).__name__}, not a string", name)
    if len(header) > _HEADER_CHARACTERS_MAX:
        raise _malformed(f"it is {len(header)} characters long; the limit is {_HEADER_CHARACTERS_MAX}", name)
    return header


_FORMS = {
    SIGNATURE_HEADER: "t=<seconds>,v1=<hex>",
    standard.ID_HEADER: "a message's id",
    standard.TIMESTAMP_HEADER: "Unix time in seconds",
    standard.SIGNATURE_HEADER: "v1,<base64>",
}


def _malformed(finding: str, name: str = SIGNATURE_HEADER) -> WebhookVerificationError:
    return WebhookVerificationError(
        "header_malformed",
        f"The {name} header is not {_FORMS[name]}: {finding}. Pass the header's value unchanged. "
        "A request that arrived like this is not from the service.",
    )
