"""Names of models and devices that cannot be used: each is refused in words."""

import pytest

from eab.errors import ModelError
from eab.models.loading import load_model


@pytest.mark.parametrize(
    "name",
    [
        "a" * 300,
        "a/" * 3000,
        "~nobody-of-this-name/x",
        "x\x00y",
        "\ud800",
        "",
        "  ",
        "../../nothing here",
        "/proc/1/root/x",
        "http://example.org/x",
        "x" * 10**6,
    ],
    ids=lambda name: repr(name)[:24],
)
def test_a_name_that_is_no_model_is_refused_in_few_words(name):
    with pytest.raises(ModelError) as error:
        load_model(name, device="cpu")
    assert len(str(error.value).encode("utf-8")) < 1000


@pytest.mark.parametrize("device", ["hpu:0", "xpu", "cuda:99", "meta x", "", "x" * 10**6, "\ud800"])
def test_a_device_that_is_not_there_is_refused_in_few_words(device):
    with pytest.raises(ModelError, match="the device is") as error:
        load_model("embedded", device=device)
    assert len(str(error.value).encode("utf-8")) < 1000
