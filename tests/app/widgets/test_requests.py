"""The table of requests on the Batching page."""

import pandas as pd
import pytest

from app.widgets.batching import requests
from eab.errors import ConfigError
from eab.labs.batching import ServingRequest


@pytest.mark.parametrize("row", [(None, 8), ("a", None)])
def test_an_incomplete_row_of_requests_is_explained(row: tuple[object, object]) -> None:
    table = pd.DataFrame([("a", 8), row], columns=["prompt", "new_tokens"])
    with pytest.raises(ConfigError, match="request 2 is incomplete; give a prompt"):
        requests(table)
    assert requests(table[:1]) == (ServingRequest("a", 8),)
