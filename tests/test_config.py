"""A config validates itself when it is made, and cannot be changed."""

import dataclasses
import math
from inspect import signature

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from transformers import PreTrainedTokenizerBase

from eab.config import MAX_NEW_TOKENS, MAX_PATHS, MAX_SEED, SETTINGS, BranchingConfig
from eab.engine.branching.presets import (
    PRESETS,
    START,
    THRESHOLDS,
    starting_config,
    starting_values,
)
from eab.errors import ConfigError, EabError

BOUNDS = [
    ("entropy_threshold", 0.0, 20.0),
    ("branch_factor", 2, 16),
    ("min_fork_weight", 0.0, 1.0),
    ("max_paths", 1, MAX_PATHS),
    ("max_new_tokens", 1, MAX_NEW_TOKENS),
    ("temperature", 0.01, 10.0),
    ("top_k", 0, 1_000_000),
    ("top_p", 0.01, 1.0),
    ("min_p", 0.0, 1.0),
    ("repetition_penalty", 0.01, 10.0),
    ("length_penalty", -10.0, 10.0),
    ("paths_per_pass", 1, 256),
    ("explored_goal", 0.0, 1.0),
    ("r", 1, MAX_NEW_TOKENS),
    ("seed", 0, MAX_SEED),
    ("kv_limit_mib", 1, 1_000_000),
]
OFF_AS_NONE = ("top_k", "top_p", "min_p", "repetition_penalty")
WHOLE = [name for name, low, _ in BOUNDS if isinstance(low, int)]


@pytest.mark.parametrize(("name", "low", "high"), BOUNDS)
def test_both_ends_of_a_range_are_allowed(name, low, high):
    for value in (low, high):
        assert getattr(BranchingConfig(**{name: value}), name) == value


@pytest.mark.parametrize(("name", "low", "high"), BOUNDS)
def test_a_value_outside_its_range_is_refused_and_the_message_names_the_range(name, low, high):
    step = 1 if isinstance(low, int) else 0.001
    for value in (low - step, high + step):
        with pytest.raises(ConfigError) as error:
            BranchingConfig(**{name: value})
        ends = f"from {low} to {high}" if name in WHOLE else f"from {low:g} to {high:g}"
        for words in (name, repr(value), ends):
            assert words in str(error.value)


@pytest.mark.parametrize("name", [name for name, _, _ in BOUNDS])
@pytest.mark.parametrize("value", [None, "3", True, math.nan, math.inf, [3], 3 + 0j])
def test_a_value_of_the_wrong_kind_is_refused(name, value):
    if name in OFF_AS_NONE and value is None:
        return
    with pytest.raises(ConfigError, match=name):
        BranchingConfig(**{name: value})


def test_none_turns_off_the_settings_that_it_turns_off_in_transformers():
    off = dict.fromkeys((*OFF_AS_NONE, "stop"))
    assert BranchingConfig(**off) == BranchingConfig()


@pytest.mark.parametrize(
    ("given", "kept"), [("\n\n", ("\n\n",)), (["a", "b"], ("a", "b")), ([], ()), (("a",), ("a",))]
)
def test_stop_strings_may_be_given_as_a_string_or_a_list(given, kept):
    assert BranchingConfig(stop=given).stop == kept


@pytest.mark.parametrize(
    ("given", "text"),
    [
        ({}, ""),
        ("", ""),
        ("{}", ""),
        ({"b": None, "a": [1, "é"]}, '{"a": [1, "é"], "b": null}'),
        ('{"b":null,"a":[1,"\\u00e9"]}', '{"a": [1, "é"], "b": null}'),
    ],
)
def test_chat_template_arguments_are_normalised_to_one_form(given, text):
    config = BranchingConfig(chat_template_kwargs=given)
    assert config.chat_template_kwargs == text
    assert dataclasses.replace(config) == config


def test_every_argument_of_apply_chat_template_is_reserved():
    taken = signature(PreTrainedTokenizerBase.apply_chat_template).parameters
    for name in [*taken][1:-1]:  # without self and **kwargs, which the template gets
        with pytest.raises(ConfigError, match="reserved"):
            BranchingConfig(chat_template_kwargs={name: 1})
    assert BranchingConfig(chat_template_kwargs={"enable_thinking": False}).chat_template_kwargs


def test_a_config_is_an_immutable_value():
    config = BranchingConfig()
    assert config == BranchingConfig()
    assert hash(config) == hash(BranchingConfig())
    assert config.chat == "auto"
    with pytest.raises(dataclasses.FrozenInstanceError):
        config.r = 3
    with pytest.raises(ConfigError):
        dataclasses.replace(config, temperature=-1)
    assert issubclass(ConfigError, EabError)
    assert issubclass(ConfigError, ValueError)


ANYTHING = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(),
    st.floats(),
    st.text(),
    st.binary(),
    st.lists(st.integers()),
    st.sampled_from(
        [10**400, 10**5000, -(10**5000), -0.0, "x" * 10**6, "\ud800", [10**5000], object, ...]
    ),
    st.builds(np.zeros, st.sampled_from([0, 1, 2, 10**6])),
    st.sampled_from([np.float64("nan"), np.float32(0.5), np.int64(3), torch.zeros(3)]),
)


@given(st.sampled_from(list(SETTINGS)), ANYTHING)
def test_any_value_is_accepted_or_refused_with_a_short_message(name, value):
    said = name
    try:
        BranchingConfig(**{name: value})
    except ConfigError as error:
        said = str(error)
    assert name in said
    assert len(said.encode("utf-8")) < 1000


def test_explicit_settings_override_a_preset() -> None:
    given = {"max_paths": 4, "seed": 7}
    made = starting_config(preset="wide", **given)
    assert made == BranchingConfig(**{**starting_values("wide"), **given})
    assert starting_config(seed=7) == dataclasses.replace(START, seed=7)
    assert starting_config(preset="balanced") == START
    in_nats = starting_config(preset="wide", entropy_threshold=2.5)
    assert in_nats == dataclasses.replace(
        starting_config(preset="wide"), entropy_threshold=2.5, threshold_unit="nats"
    )
    for unit, value in THRESHOLDS.items():
        assert starting_config(threshold_unit=unit).entropy_threshold == value
    for name, preset in PRESETS.items():
        config = starting_config(preset=name)
        for setting, value in preset.settings.items():
            assert getattr(config, setting) == value
            widget = SETTINGS[setting].widget
            assert widget is None or widget.nearest(value) == value  # the page offers this value
    for wrong in ("Balanced", "", 3, ["wide"]):
        with pytest.raises(ConfigError, match="it must be one of: focused, balanced, wide"):
            starting_config(preset=wrong)
