"""Links survive a round trip, bad values are explained, and the page opens what a link says."""

from dataclasses import replace
from urllib.parse import parse_qsl

import pytest
from any_config import CONFIGS
from hypothesis import given
from hypothesis import strategies as st
from made_runs import bundled, bundled_run
from msgspec import structs
from page_walk import opened

from app.server.links import MAX_PROMPT, Link, from_query, to_query, what_it_opens
from app.server.store import default_store
from app.state.tab import Details, OpenRun, link_to
from eab.config import SETTINGS, BranchingConfig
from eab.errors import LinkError
from eab.run import RunFold
from eab.run.events import LabelRule, Message

TEXT = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=200)


@given(
    st.builds(
        Link,
        run=st.text("abcdef-_0", max_size=16),
        labels=st.lists(
            TEXT.map(lambda text: LabelRule(text[:9], "contains", text)), max_size=2
        ).map(tuple),
        prompt=st.none() | TEXT,
        model=st.sampled_from(["", "embedded", "./a model", "org/name"]),
        config=st.none() | CONFIGS,
        cursor=st.none() | st.integers(0, 5000),
    )
)
def test_a_link_survives_a_round_trip(link: Link) -> None:
    assert from_query(dict(parse_qsl(to_query(link), strict_parsing=bool(to_query(link))))) == link


CHAT = (Message("system", "Be brief."), Message("user", "Hi"), Message("assistant", "{&}\n"))


def test_the_messages_of_a_link_survive_a_round_trip_and_give_its_prompt() -> None:
    link = Link(prompt="Hi", messages=CHAT, config=BranchingConfig())
    query = dict(parse_qsl(to_query(link)))
    assert "prompt" not in query
    assert from_query(query) == link
    long = replace(link, messages=(Message("system", "x" * MAX_PROMPT), *CHAT))
    assert from_query(dict(parse_qsl(to_query(long)))) == Link(config=link.config)
    assert "too long for a link" in what_it_opens(long)


def test_a_link_says_that_it_cannot_hold_token_ids() -> None:
    state = RunFold()
    state.apply(structs.replace(bundled_run("bent").started, by_token_ids=True))
    entry = OpenRun("key", state, details=Details("", "", ()))
    link = link_to(entry)
    assert link.prompt is None
    assert what_it_opens(link).startswith("A link cannot hold a prompt of token ids.")
    found = replace(entry, details=replace(entry.details, link_ids={"saved": "abc"}))
    assert what_it_opens(link_to(found)) == "Opens this run at this step."


def test_a_prompt_that_is_too_long_is_left_out() -> None:
    link = Link(prompt="x" * (MAX_PROMPT + 1), config=BranchingConfig())
    assert from_query(dict(parse_qsl(to_query(link)))) == replace(link, prompt=None)


VALUES = (
    st.text(st.characters() | st.sampled_from("\ud800\udfff\x00"))
    | st.integers().map(str)
    | st.floats().map(str)
    | st.sampled_from(["-0.0", "1e400", "9" * 300, "9" * 5000, "x" * 10**5, "٣", "true", "auto"])
)


@given(
    st.dictionaries(
        st.sampled_from(
            [*SETTINGS, "cursor", "prompt", "messages", "run", "saved", "model", "zzz"]
        ),
        VALUES,
    )
)
def test_any_link_is_read_or_refused_with_a_short_message(values: dict[str, str]) -> None:
    said = ""
    try:
        from_query(values)
    except LinkError as error:
        said = str(error)
    assert len(said.encode("utf-8")) < 1000


def test_unknown_parameters_are_ignored() -> None:
    assert from_query({"utm_source": "mail", "kv_limit_mib": "1000000"}) == Link()


def test_the_page_restores_prompt_settings_model_and_cursor() -> None:
    config = BranchingConfig(
        seed=77, temperature=0.5, threshold_unit="rank", entropy_threshold=3.0, max_paths=7
    )
    link = Link(
        example="coin.eab", prompt="My own prompt", model="./my-model@int4", config=config, cursor=3
    )
    page = opened(**dict(parse_qsl(to_query(link))))
    assert not page.error
    held = {
        "prompt": "My own prompt",
        "set_seed": 77,
        "set_temperature": 0.5,
        "set_threshold_rank": 3.0,
        "set_max_paths": 7,
        "set_model_other": "./my-model",
        "set_weights": "int4",
    }
    assert {key: page.value(key) for key in held} == held
    assert (page.board["run"], page.board["cursor"]) == ("recorded-coin.eab", 3)


def test_a_link_to_a_bundled_run_has_its_labels() -> None:
    rules = (LabelRule("good", "mark", path=1), LabelRule("heads", "contains", text="heads"))
    page = opened(**dict(parse_qsl(to_query(Link(example="coins.eab", labels=rules)))))
    assert [rule["label"] for rule in page.board["labels"]["rules"]] == ["good", "heads"]
    link = from_query(dict(parse_qsl(page.board["offers"]["link"]["query"])))
    assert link.labels == rules
    many = Link(example="coins.eab", labels=rules * MAX_PROMPT)
    assert "without its labels" in what_it_opens(many)
    assert from_query(dict(parse_qsl(to_query(many)))) == Link(example="coins.eab")
    nowhere = (LabelRule("good", "mark", path=999),)
    page = opened(**dict(parse_qsl(to_query(Link(example="coins.eab", labels=nowhere)))))
    assert "The labels of this link cannot be shown" in page.errors[0]
    assert page.board["labels"] is None
    page = opened(**dict(parse_qsl(to_query(Link(example="gone.eab", labels=rules)))))
    assert "heads" not in str(page.board["labels"]), "another run is shown"


def test_a_link_to_a_saved_run_opens_it() -> None:
    store = default_store()
    saved = store.save("linked", bundled("bent"))
    page = opened(saved=saved.id)
    assert any("linked" in caption.value for caption in page.main.caption)
    assert page.value("prompt") == bundled_run("bent").started.prompt
    store.delete(saved.id)
    page = opened(saved=saved.id, prompt="Again", seed=3)
    assert "press Run to make it again" in page.errors[0]
    assert page.value("prompt") == "Again"


@pytest.mark.parametrize("query", [{"temperature": "nan"}, {"messages": "["}, {"labels": "[3]"}])
def test_the_page_explains_a_bad_link_and_starts_as_usual(query: dict[str, str]) -> None:
    page = opened(**query)
    assert "This link cannot be opened" in page.errors[0]
    assert page.value("set_max_paths") == bundled_run("bridge").started.config.max_paths
    assert page.boards


@pytest.mark.parametrize("name", ["run", "saved", "example"])
def test_a_link_to_a_missing_run_is_explained(name: str) -> None:
    page = opened(**{name: "<b>nothing</b>", "seed": 5})
    assert page.error
    assert "<b>" not in page.errors[0]
    assert page.value("set_seed") == 5
    assert page.boards


def test_the_page_offers_a_link_to_what_is_on_the_screen() -> None:
    page = opened(example="coin.eab")
    query = page.board["offers"]["link"]["query"]
    link = from_query(dict(parse_qsl(f"{query}&cursor=4")))  # the board adds its cursor
    started = bundled_run("coin").started
    config = replace(started.config, kv_limit_mib=4096)
    assert link == Link(
        example="coin.eab", prompt=started.prompt, model="embedded", config=config, cursor=4
    )
