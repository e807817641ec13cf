"""What a page holds of its run, unpacked."""

import base64
import gzip
import json
import re
from typing import Any


def data_of(page: str) -> dict[str, Any]:
    """The data block of an exported page (PageData in eab/board/static/types.d.ts)."""
    [packed] = re.findall(r'<script type="text/plain" id="run">([\w+/=]+)</script>', page)
    data: dict[str, Any] = json.loads(gzip.decompress(base64.b64decode(packed)))
    return data
