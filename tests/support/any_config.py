"""A strategy for all kinds of configs, for tests of properties that hold for every config."""

from typing import Any

from hypothesis import strategies as st

from eab.config import SETTINGS, BranchingConfig
from eab.settings import THRESHOLD_SCALES, Choice, Real, Switch, Text, Values, Whole
from eab.text_values import JsonObject, Texts

_NAMES = st.text("abcdefgh_", min_size=1, max_size=8)
_JSON_SCALARS = st.none() | st.booleans() | st.integers() | st.floats(-9, 9) | st.text(max_size=9)


def _any_of(values: Values) -> st.SearchStrategy[Any]:
    match values:
        case Whole(low, high, or_word=word):
            return st.integers(low, high) | (st.just(word) if word else st.nothing())
        case Real(low, high):
            return st.floats(low, high)
        case Choice(names):
            return st.sampled_from(names)
        case Switch(word):
            return st.booleans() | (st.just(word) if word else st.nothing())
        case Text():
            return st.text(max_size=100)
        case Texts(most):
            return st.lists(st.text(min_size=1, max_size=9), max_size=most).map(tuple)
        case JsonObject():
            return st.dictionaries(_NAMES, _JSON_SCALARS, max_size=3)
    raise TypeError(f"no strategy for {values!r}")


_OTHERWISE: dict[str, st.SearchStrategy[Any]] = {
    "chat": st.sampled_from([True, "auto"]),  # a system message needs a chat
    "kv_limit_mib": st.just(SETTINGS["kv_limit_mib"].default),  # a link does not carry it
}

_SETTINGS = {name: _any_of(declared.values) for name, declared in SETTINGS.items()} | _OTHERWISE
CONFIGS = st.one_of(
    st.builds(
        BranchingConfig,
        **_SETTINGS | {"threshold_unit": st.just(unit), "entropy_threshold": _any_of(scale.values)},
    )
    for unit, scale in THRESHOLD_SCALES.items()
)
