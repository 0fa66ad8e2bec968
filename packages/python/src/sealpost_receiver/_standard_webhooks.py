from __future__ import annotations

import base64
import binascii
import re
from typing import List, Optional, Union

ID_HEADER = "webhook-id"
TIMESTAMP_HEADER = "webhook-timestamp"
SIGNATURE_HEADER = "webhook-signature"
"""The headers of Standard Webhooks, which an endpoint may ask for beside the service's own."""

# Of a key, by the specification.
_KEY_BYTES = range(24, 65)
_SECRET = re.compile(r"(?:whsec_)?([A-Za-z0-9+/]+)={0,2}")
# A full stop would let one text be read as two different messages.
_ID = re.compile(r"[!-\-/-~]{1,256}")
_SIGNATURE = re.compile(r"v1,[A-Za-z0-9+/]{43}=")
_SIGNATURES_MAX = 16


def standard_key(secret: str) -> Optional[bytes]:
    """The bytes that the base64 after `whsec_` stands for. None: it is no secret of Standard Webhooks."""
    match = _SECRET.fullmatch(secret)
    if match is None:
        return None
    text = match.group(1)
    try:
        key = base64.b64decode(text + "=" * (-len(text) % 4), validate=True)
    except binascii.Error:
        return None
    return key if len(key) in _KEY_BYTES else None


def is_standard_id(message_id: str) -> bool:
    return _ID.fullmatch(message_id) is not None


def parse_standard_signatures(text: str) -> Union[List[bytes], str]:
    """Each 32 bytes; a text: what is wrong."""
    signatures: List[bytes] = []
    for item in text.split(" "):
        # Other versions are not this scheme's.
        if not item.startswith("v1,"):
            continue
        if not _SIGNATURE.fullmatch(item):
            return "a v1 is not the base64 of 32 bytes"
        signatures.append(base64.b64decode(item[3:]))
        if len(signatures) > _SIGNATURES_MAX:
            return f"it has more than {_SIGNATURES_MAX} v1"
    return signatures or "it has no v1"
