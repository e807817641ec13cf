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

from eab.branching.presets import PRESETS, START, THRESHOLDS, starting_config, starting_values
from eab.config import MAX_NEW_TOKENS, MAX_PATHS, MAX_SEED, SETTINGS, BranchingConfig
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


@pytest.mark.parametrize("name", WHOLE)
def test_a_fraction_is_refused_where_a_whole_number_is_needed(name):
    with pytest.raises(ConfigError, match=f"{name} is 2.5; it must be a whole number"):
        BranchingConfig(**{name: 2.5})


@pytest.mark.parametrize(
    ("unit", "value", "allowed"), [("normalised", 1.5, "0 to 1"), ("rank", 0.65, "1 to 24")]
)
def test_each_unit_of_the_threshold_has_a_range(unit, value, allowed):
    assert BranchingConfig(entropy_threshold=1.0, threshold_unit=unit).entropy_threshold == 1.0
    with pytest.raises(ConfigError, match=rf"entropy_threshold is {value}; .* {allowed} .*{unit}"):
        BranchingConfig(entropy_threshold=value, threshold_unit=unit)


POLICIES = "fair, original, arithmetic, stochastic-beam, beam, greedy, independent"


@pytest.mark.parametrize(
    ("name", "value", "allowed"),
    [
        ("policy", "best", POLICIES),
        ("policy", None, POLICIES),
        ("policy", ["fair"], POLICIES),
        ("threshold_unit", "bits", "nats, normalised, rank"),
        ("cache", "slab", "tree, paged, concat-cow, deep-copy, recompute"),
    ],
)
def test_an_unknown_choice_is_refused_with_the_allowed_choices(name, value, allowed):
    with pytest.raises(ConfigError) as error:
        BranchingConfig(**{name: value})
    assert str(error.value) == f"the setting {name} is {value!r}; it must be one of: {allowed}"


@pytest.mark.parametrize(
    ("given", "kept"), [("\n\n", ("\n\n",)), (["a", "b"], ("a", "b")), ([], ()), (("a",), ("a",))]
)
def test_stop_strings_may_be_given_as_a_string_or_a_list(given, kept):
    assert BranchingConfig(stop=given).stop == kept


@pytest.mark.parametrize(
    ("name", "value"), [("system", "You are a pirate."), ("chat_template_kwargs", '{"a": 1}')]
)
def test_chat_template_settings_are_refused_while_chat_is_off(name, value):
    with pytest.raises(ConfigError, match=f"{name} is set, but chat is off.*chat='auto'"):
        BranchingConfig(**{name: value, "chat": False})
    for chat in (True, "auto"):
        assert BranchingConfig(**{name: value, "chat": chat}).chat == chat


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


NOT_PLAIN = "which is not JSON with plain values"
REFUSED = {
    "stop": [
        (7, "it must be a list of at most 4 strings"),
        (["a"] * 5, "it must be a list of at most 4 strings"),
        (["a", ""], "has an empty string"),
        ([3], "a text of the setting stop is 3; it must be text"),
        (["x" * 101], "has 101 characters; at most 100 are allowed"),
        (["x\ud800"], "is not valid text at character 2"),
    ],
    "chat_template_kwargs": [
        (None, "it must be a JSON object"),
        ("[1]", "it must be a JSON object"),
        ("{a: 1}", NOT_PLAIN),
        ('{"a": NaN}', NOT_PLAIN),
        ('{"a": 1e999}', NOT_PLAIN),
        ({"a": {1, 2}}, "it must be a JSON object"),
        ({"a": float("inf")}, "it must be a JSON object"),
        ("[" * 900, NOT_PLAIN),
        ("[" * 10**5, "has 100,000 characters; at most 1,000 are allowed"),
        ({"a": "x" * 1000}, "has 1,009 characters; at most 1,000 are allowed"),
        ({"a": [[[[1]]]]}, "has more than 4 nested lists and objects"),
        ('{"a": "\\ud800"}', "is not valid text at character 8"),
        ({"tokenize": True}, "has the name 'tokenize', which is reserved"),
    ],
    "chat": [(1, "chat is 1"), ("yes", "chat is 'yes'")],
    "system": [(3, "system is 3"), (None, "system is None")],
}


@pytest.mark.parametrize(
    ("name", "given", "why"),
    [(name, *case) for name, cases in REFUSED.items() for case in cases],
    ids=lambda value: str(value)[:20],
)
def test_texts_and_lists_that_are_not_allowed_are_refused_with_an_explanation(name, given, why):
    with pytest.raises(ConfigError) as error:
        BranchingConfig(**{name: given})
    assert f"the setting {name} " in str(error.value)
    assert why in str(error.value)


def test_every_argument_of_apply_chat_template_is_reserved():
    taken = signature(PreTrainedTokenizerBase.apply_chat_template).parameters
    for name in [*taken][1:-1]:  # without self and **kwargs, which the template gets
        with pytest.raises(ConfigError, match="reserved"):
            BranchingConfig(chat_template_kwargs={name: 1})
    assert BranchingConfig(chat_template_kwargs={"enable_thinking": False}).chat_template_kwargs


@pytest.mark.parametrize(
    ("typed", "meant"),
    [
        ("treshold", "entropy_threshold"),  # --threshold on the command line
        ("temprature", "temperature"),
        ("top_kk", "top_k"),
        ("branching_factor", "branch_factor"),
        ("max_length", "max_new_tokens"),
        ("num_return_sequences", "max_paths"),
        ("num_beams", "max_paths"),
    ],
)
def test_an_unknown_setting_is_refused_with_the_nearest_name(typed, meant):
    for make in (BranchingConfig.from_settings, lambda settings: BranchingConfig(**settings)):
        with pytest.raises(ConfigError, match=f"no setting '{typed}'; did you mean '{meant}'?"):
            make({typed: 1})


def test_a_name_like_no_setting_is_refused_with_all_names():
    with pytest.raises(ConfigError, match="no setting 'zzz'; the settings are: ") as error:
        BranchingConfig.from_settings({"zzz": 1})
    assert all(field.name in str(error.value) for field in dataclasses.fields(BranchingConfig))


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


@pytest.mark.parametrize("name", ["x" * 10**6, "\ud800", "", "self"])
def test_any_unknown_setting_is_refused_with_a_short_message(name):
    with pytest.raises(ConfigError, match="there is no setting") as error:
        BranchingConfig.from_settings({name: 1})
    assert len(str(error.value).encode("utf-8")) < 1000


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
