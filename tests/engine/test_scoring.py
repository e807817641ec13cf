"""How likely given texts are: equality with sums over all sequences of tokens, and with plain
forward passes.
"""

import math

import pandas as pd
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from tiny_models import tiny

from eab import EntropyAdaptiveBranching
from eab.engine.scoring import UNREAD, UNREAD_SHARE
from eab.errors import ConfigError, PromptError
from eab.lessons.checks.policy import TableModel, random_table

PLAIN = {"temperature": 1, "top_p": 1, "chat": False}
SPELLED = ["a", "b", "ab", "ba", "aba", "<turn>", "<end>"]
TURN, END = 5, 6
LONGEST = 5  # tokens of the texts that are summed


class SpelledModel(TableModel):
    """Its tokens write one to three letters, so that a text has several spellings."""

    def text(self, token):
        return SPELLED[token]

    def is_special(self, token):
        return token in (TURN, END)

    def encode_following(self, text):
        return tuple(SPELLED.index(letter) for letter in text)


def spelled(seed):
    """A random chain in which control tokens inside a text are rare."""
    table = random_table(seed, len(SPELLED))
    table[:, TURN] *= 1e-4
    table /= table.sum(axis=1, keepdims=True)
    model = SpelledModel(table, stop_ids=[END])
    return model, EntropyAdaptiveBranching(model, **PLAIN)


def summed(model, holds):
    """The probability of all texts after token 0 for which `holds(text, has ended)` is true."""
    return math.fsum(
        mass
        for tokens, mass in model.all_texts(0, LONGEST)
        if holds("".join(SPELLED[token] for token in tokens if token < TURN), tokens[-1:] == (END,))
    )


def holds(bounds, value, rounding=1e-9):
    return bounds.low - rounding <= value <= bounds.high + rounding


@settings(max_examples=25)
@given(seed=st.integers(0, 10**6), text=st.text("ab", min_size=1, max_size=3))
def test_the_bounds_contain_the_sum_over_all_sequences_of_tokens(seed, text):
    model, explorer = spelled(seed)
    [scored] = explorer.score([0], [text])
    # The sums leave out texts with more control tokens than LONGEST allows: about 1e-8.
    assert holds(scored.begins, summed(model, lambda found, _: found.startswith(text)), 1e-7)
    exact = summed(model, lambda found, ended: ended and found == text)
    assert holds(scored.exactly, exact, 1e-7)
    most = max(UNREAD, UNREAD_SHARE * scored.begins.high)
    assert scored.begins.high - scored.begins.low <= most
    assert scored.exactly.high - scored.exactly.low <= most


@settings(max_examples=10)
@given(seed=st.integers(0, 10**6))
def test_neither_counts_a_text_once_that_begins_with_another(seed):
    model, explorer = spelled(seed)
    scores = explorer.score([0], ["a", "ab", ["b", "ba"]])
    none = summed(model, lambda found, _: not found.startswith(("a", "b")))
    assert holds(scores.neither, none, 1e-6)
    assert scores[0].begins.low >= scores[1].begins.low, "ab begins with a"
    assert len(scores[2].spellings) == 2
    either = summed(model, lambda found, ended: ended and found in ("b", "ba"))
    assert holds(scores[2].exactly, either, 1e-6)


def test_tokens_have_the_log_probabilities_of_a_plain_forward_pass(twins):
    twin = twins("llama")
    explorer = EntropyAdaptiveBranching(twin.ours, **PLAIN)
    prompt, text = [5, 9, 2, 7], [3, 8, 4]
    [scored] = explorer.score(prompt, [text])
    with torch.inference_mode():
        logits = twin.plain(torch.tensor([[*prompt, *text]])).logits[0].double()
    plain = logits.log_softmax(dim=-1)[len(prompt) - 1 : -1]
    expected = [float(plain[index, token]) for index, token in enumerate(text)]
    [spelling] = scored.spellings
    assert [token.model_log_prob for token in spelling.tokens] == pytest.approx(expected, abs=1e-9)
    assert [token.log_prob for token in spelling.tokens] == pytest.approx(expected, abs=1e-6)
    assert scored.log_prob == pytest.approx(sum(expected), abs=1e-6)


@pytest.mark.parametrize(
    "changed",
    [{"temperature": 0.7, "top_p": 0.9}, {"temperature": 1.3}, {"repetition_penalty": 1.5}],
)
def test_a_text_has_the_probability_that_a_run_gives_it(embedded, changed):
    explorer = EntropyAdaptiveBranching(embedded, **PLAIN | changed)
    prompt = "Once upon a time, there was a"
    run = explorer.run(prompt, max_new_tokens=6, max_paths=4)
    texts = [list(sample.token_ids) for sample in run.samples]
    for sample, scored in zip(run.samples, explorer.score(prompt, texts), strict=True):
        assert scored.log_prob == pytest.approx(sample.log_prob, abs=1e-4)


def test_a_text_that_a_filter_removes_is_impossible(embedded):
    explorer = EntropyAdaptiveBranching(embedded, **PLAIN | {"top_k": 1})
    paris, lyon = explorer.score("The capital of France is", [" Paris", " Lyon"])
    assert paris.begins == (1, 1)
    assert lyon.begins == (0, 0)
    assert lyon.log_prob == -math.inf
    [control] = explorer.score("Once", ["<|endoftext|>"])
    assert len(control.spellings[0].tokens) > 1, "the text of a control token is ordinary text"
    assert math.isfinite(lyon.spellings[0].tokens[0].model_log_prob)


@pytest.mark.parametrize("kind", ["MambaConfig", "Lfm2Config", "BloomConfig"])
def test_models_with_other_memories_score_as_they_do_alone(kind, words):
    plain_model = tiny(kind, spread=0.3)
    explorer = EntropyAdaptiveBranching((tiny(kind, spread=0.3), words), **PLAIN)
    prompt, texts = [5, 9, 2, 7], [[3, 8], [3], [6, 2, 4]]
    for text, scored in zip(texts, explorer.score(prompt, texts), strict=True):
        with torch.inference_mode():
            logits = plain_model(torch.tensor([[*prompt, *text]])).logits[0].double()
        plain = logits.log_softmax(dim=-1)[len(prompt) - 1 : -1]
        expected = sum(float(plain[index, token]) for index, token in enumerate(text))
        assert scored.log_prob == pytest.approx(expected, abs=1e-4)


def test_the_same_texts_after_several_prompts_are_a_table(embedded):
    explorer = EntropyAdaptiveBranching(embedded, **PLAIN)
    prompts = ["The capital of France is", "The capital of Italy is"]
    table = pd.concat(
        scores.to_pandas() for scores in explorer.score_batch(prompts, [" Paris", " Rome"])
    )
    likely = table.pivot_table(index="prompt", columns="text", values="begins_low")
    assert likely.loc[prompts[0], " Paris"] > 0.9 > likely.loc[prompts[0], " Rome"]
    assert likely.loc[prompts[1], " Rome"] > 0.9 > likely.loc[prompts[1], " Paris"]


def test_a_text_that_is_longer_than_the_context_is_refused_and_longer_spellings_stay_unread():
    model, explorer = spelled(3)
    model.context = 4
    with pytest.raises(PromptError, match="the prompt has 1 tokens and a text 4, but"):
        explorer.score([0], ["abab"])
    [scored] = explorer.score([0], ["aba"])
    exact = summed(model, lambda found, _: found.startswith("aba"))
    assert holds(scored.begins, exact, 1e-7)


def test_a_server_cannot_score(twins, monkeypatch):
    model = spelled(0)[0]
    explorer = EntropyAdaptiveBranching(model, **PLAIN)
    monkeypatch.setattr(type(model.kv_shape), "blocks", property(lambda _: object()), raising=False)
    with pytest.raises(ConfigError, match="runs on a server"):
        explorer.score([0], ["a"])
