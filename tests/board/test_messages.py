"""The messages to the browser: JSON, idempotent, complete; and the sentences below the pictures."""

import json
import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from invented_runs import CARD, WORDS, appended, invented_run, predicted, with_each
from made_runs import bundled, bundled_run
from msgspec import structs

from eab.board.messages import SHARES, Feed, board_message
from eab.config import BranchingConfig
from eab.figures.captions import entropy_sentence, sentences_at, tree_sentence
from eab.figures.kv_memory import memory_sentence, separate_bytes
from eab.lessons import bundled_runs
from eab.run import RunState, Step, fold
from eab.run.events import (
    EntropyBounds,
    Event,
    KvMeasured,
    Labelled,
    LabelRule,
    Predicted,
    RunStarted,
    StepTimed,
)

HOSTILE = ["<script>", "$x$", "\n\t", "\u202egnp", "\udce2\udc82", "\x00", "مرحبا"]
STORY = bundled_runs.events_of(bundled_runs.named(bundled_runs.STORY))


def with_texts(token: list[Any], texts: list[str]) -> list[Any]:
    """A token record with the texts themselves instead of their indices."""
    piece, entropy, flat, taken, *bounds = token
    candidates = [(texts[place], share) for place, share in zip(flat[::2], flat[1::2], strict=True)]
    chosen = taken if isinstance(taken, int) else (texts[taken[0]], taken[1])
    return [piece, entropy, candidates, chosen, *bounds]


def as_browser(messages: list[dict[str, Any]]) -> tuple[dict[int, Any], dict[int, Any]]:
    """The paths and steps that the board has after these messages."""
    paths: dict[int, Any] = {}
    steps: dict[int, Any] = {}
    for message in messages:
        for path in message["paths"]:
            before = paths.get(path["id"], {"touched": -1, "tokens": [], "born": path["born"]})
            if before["touched"] > path["touched"]:
                continue
            assert path["first_token"] <= len(before["tokens"])
            new = [with_texts(token, message["texts"]) for token in path["tokens"]]
            tokens = before["tokens"][: path["first_token"]] + new
            merged = {"tokens": tokens, "first_token": 0}
            if path["first_token"]:
                since = message["since_step"]
                merged["born"] = before["born"]
                merged["weights"] = [
                    *(change for change in before["weights"] if change[0] < since),
                    *path["weights"],
                ]
                limits = before["limited_steps"]
                merged["limited_steps"] = [
                    *(step for step in limits if step < since),
                    *path["limited_steps"],
                ]
            paths[path["id"]] = path | merged
        steps |= {step["step"]: step for step in message["steps"]}
    return paths, steps


def test_a_token_has_entropy_bounds_only_if_they_are_known() -> None:
    run = RunState(STORY[0])
    for event in STORY[1:]:
        known = isinstance(event, Predicted) and event.step == 1
        run.apply(with_each(event, whole=EntropyBounds(1.0, 2.5)) if known else event)
    found = {
        path["born"] + index: token[4:]
        for path in board_message(run)["paths"]
        for index, token in enumerate(path["tokens"])
    }
    assert found.pop(1) == [1.0, 2.5]
    assert not any(found.values())


@given(st.integers(0, 500), st.integers(1, 25), st.lists(st.booleans(), min_size=25, max_size=25))
def test_a_board_that_asks_for_missed_steps_gets_the_whole_run(
    seed: int, steps: int, lost: list[bool]
) -> None:
    started, *events = invented_run(seed, steps, 8, [*HOSTILE, "\udce2", "\udc82\udcac", "é"])
    run, feed = RunState(started), Feed()
    arrived: list[dict[str, Any]] = []
    last = 0
    for event in events:
        run.apply(event)
        if not isinstance(event, StepTimed):
            continue
        message = feed.message(run, "run", "live")
        if lost[event.step]:
            continue
        if message["since_step"] > last:
            feed.resend(last)
            message = feed.message(run, "run", "live")
        arrived.append(message)
        last = event.step
    feed.resend(last)
    arrived.append(feed.message(run, "run", "live"))
    assert as_browser(arrived) == as_browser([board_message(run)])


def test_a_message_starts_with_the_last_step_of_the_previous_one() -> None:
    run, feed = fold(invented_run(2, 40, 8)), Feed()
    feed.resend(10)
    begins = []
    for steps in (20, 25, 31, 40):
        del run.steps[steps:]
        run.steps += [Step(step) for step in range(len(run.steps), steps)]
        begins.append(feed.message(run, "run", "live")["since_step"])
    assert begins == [0, 19, 24, 30]  # another run is sent in full


@given(st.integers(0, 500), st.integers(1, 20), st.integers(1, 12), st.floats(0, 1))
def test_hostile_tokens_are_sent_as_plain_text(
    seed: int, steps: int, paths: int, until: float
) -> None:
    events = invented_run(seed, steps, paths, WORDS + HOSTILE)
    run = fold(events[: max(1, int(until * len(events)))])
    message = board_message(run)
    assert len(message["paths"]) == len(run.paths)
    assert json.loads(json.dumps(message, allow_nan=False)) == message
    assert json.dumps(message, ensure_ascii=False).encode("utf-8")  # no surrogates are left


def assert_add_up(events: list[Event], back: int) -> None:
    """Check that overlapping messages, then a late one and the last one, give the whole run."""
    run, messages = RunState(events[0]), []
    for event in events[1:]:
        run.apply(event)
        if isinstance(event, StepTimed):
            messages.append(board_message(run, max(0, len(run.steps) - 1 - back)))
    late, last = messages[len(messages) // 2], board_message(run, len(run.steps) - 1)
    assert as_browser([*messages, late, last]) == as_browser([board_message(run)])


@given(st.integers(0, 500), st.integers(2, 25), st.integers(0, 8))
def test_messages_add_up_to_the_whole_run(seed: int, steps: int, back: int) -> None:
    assert_add_up(invented_run(seed, steps, 8, [*HOSTILE, "\udce2", "\udc82\udcac", "é"]), back)


@pytest.mark.parametrize("back", [0, 3])
def test_weights_and_path_limits_add_up_too(back: int) -> None:
    run = bundled_run("ball")
    assert any(path.limited_steps for path in run.paths)
    assert any(len(path.weights) > 1 for path in run.paths)
    assert_add_up(bundled("ball"), back)


def test_a_message_about_the_last_steps_is_small() -> None:
    run = fold(invented_run(2, 60, 12))
    whole, last = (len(json.dumps(board_message(run, since))) for since in (0, 57))
    assert last < whole / 3


def test_the_kv_parts_add_up_to_the_bytes_held() -> None:
    run = fold(STORY)
    for told, step in zip(board_message(run)["steps"], run.steps, strict=True):
        assert told["shared"] + told["private"] + told["spare"] == step.kv.bytes_held
        assert sum(own for _, _, own in told["paths"]) == told["private"]


def test_states_are_sent_apart_unless_the_model_keeps_all_memory_itself() -> None:
    for shares in (True, False):
        card = structs.replace(STORY[0].model, own_memory="It is its own.", shares_rows=shares)
        events = [
            structs.replace(
                event, usage=structs.replace(event.usage, own_bytes=(7,) * len(event.usage.paths))
            )
            if isinstance(event, KvMeasured)
            else event
            for event in (structs.replace(STORY[0], model=card), *STORY[1:])
        ]
        for told in board_message(fold(events))["steps"]:
            for _, _, private, *state in told["paths"]:
                assert state == ([7] if shares else [])
                assert private >= 7


def test_token_records_have_the_entropies_and_candidates_of_the_run() -> None:
    run = fold(STORY)
    message = board_message(run)
    texts = message["texts"]
    assert len(set(texts)) == len(texts)
    for told, path in zip(message["paths"], run.paths, strict=True):
        for (_, entropy, flat, taken), token in zip(told["tokens"], path.tokens, strict=True):
            assert entropy == pytest.approx(token.entropy, abs=1e-4)
            shown = [
                (texts[place], share) for place, share in zip(flat[::2], flat[1::2], strict=True)
            ]
            assert [text for text, _ in shown] == [one.text for one in token.candidates]
            for (_, share), candidate in zip(shown, token.candidates, strict=True):
                assert share / SHARES == pytest.approx(candidate.probability, abs=1e-5)
            if token.id in [candidate.token for candidate in token.candidates]:
                assert token.candidates[taken].token == token.id
            else:
                assert texts[taken[0]] == token.text
                assert taken[1] / SHARES == pytest.approx(math.exp(token.log_prob), abs=1e-5)


def test_the_sentences_contain_the_numbers_of_the_run() -> None:
    run = fold(STORY)
    assert f"{len(run.leaves())} path" in tree_sentence(run)
    highest = max(token.entropy for path in run.paths for token in path.tokens)
    assert f"{highest:.2f} nats" in entropy_sentence(run)
    kv = run.peak_kv
    saving = separate_bytes(run.started, kv) / kv.bytes_held
    assert f": {saving:.1f}× as much." in memory_sentence(run)


def test_the_sentences_of_a_step_equal_those_of_a_run_that_ends_there() -> None:
    growing, whole = RunState(STORY[0]), fold(STORY)
    told = [step["sentences"] for step in board_message(whole)["steps"]]
    assert len({said["tree"] for said in told}) > 5
    for event in STORY[1:]:
        growing.apply(event)
        if isinstance(event, StepTimed):
            said = told[event.step]
            assert said["tree"] == tree_sentence(growing)
            assert said["entropy"] == entropy_sentence(growing)
            assert said["memory"] == sentences_at(growing, [event.step])[0]["memory"]


def test_the_sentences_of_an_empty_run_say_that_nothing_happened_yet() -> None:
    for sentence in (tree_sentence, entropy_sentence, memory_sentence):
        assert "yet" in sentence(fold(STORY[:1]))


def test_the_message_before_a_run_starts_has_all_fields_of_a_keyframe() -> None:
    waiting, started = (Feed().message(run, "one", "live") for run in (None, fold(STORY[:1])))
    assert waiting.keys() == started.keys()
    assert waiting["since_step"] == 0


def test_the_start_and_the_end_of_a_long_prompt_are_sent_in_whole_words() -> None:
    words = [f"word{number}" for number in range(200)]
    text = " ".join(words)
    run = RunState(RunStarted(text, (1,), (text,), CARD, BranchingConfig(), 1.0))
    start, _, end = board_message(run)["prompt"].partition(" … ")
    assert text.startswith(f"{start} ")
    assert text.endswith(f" {end}")
    assert 150 < len(end) <= 200


@pytest.mark.parametrize(
    ("after", "prompt", "first"),
    [
        (["roll", " said"], "A troll sat near the", " troll"),
        ([" said"], "A troll sat near the t", " said"),
        ([], "A troll sat near the t", None),
    ],
)
def test_a_run_from_a_forced_token_shows_the_word_of_that_token_in_full(
    after: list[str], prompt: str, first: str | None
) -> None:
    texts = ("A troll", " sat", " near", " the", " t")
    config = BranchingConfig()
    run = RunState(RunStarted(texts[0], (1, 2, 3, 4, 5), texts, CARD, config, 1.0, continued=4))
    for step, text in enumerate(after):
        run.apply(predicted(step, 0, 0.0))
        run.apply(appended(step, 0, 7, text, 0.0))
    message = board_message(run)
    assert message["prompt"] == prompt
    tokens = message["paths"][0]["tokens"] if message["paths"] else []
    assert (tokens[0][0] if tokens else None) == first
    assert len(tokens) == len(after)


@pytest.mark.parametrize("pattern", ["(", "(a|a|aa)+$(?<=b)"])
def test_a_file_whose_labels_cannot_be_searched_for_is_shown_without_them(pattern, monkeypatch):
    monkeypatch.setattr("eab.analysis.answer_rules.MOST_SECONDS", 0.2)
    run = fold([*STORY, Labelled(1, (LabelRule("a", "pattern", pattern),))])
    for leaf in run.leaves():
        leaf.tokens[-2].text = "a" * 60
    message = board_message(run)
    assert message["labels"] is None
    assert message["notes"]["tree"].startswith("The labels of this run are not shown: ")
    assert message["paths"]
