"""Token texts join to what the tokenizer decodes."""

import random

import pytest
from made_runs import run_of
from transformers import AddedToken, AutoTokenizer, PreTrainedTokenizerFast

from eab import token_text
from eab.engine.models.loading import load_model
from eab.engine.models.sources import EMBEDDED_FOLDER
from eab.engine.models.token_bytes import TokenTexts


def joined(texts: TokenTexts, tokens: list[int]) -> str:
    return token_text.join(texts[token] for token in tokens)


def ordinary_ids(tokenizer: PreTrainedTokenizerFast) -> list[int]:
    return sorted(set(range(len(tokenizer))) - set(tokenizer.all_special_ids))


def random_sequences(ids: list[int]) -> list[list[int]]:
    rng = random.Random(7)
    return [[token] for token in ids] + [
        rng.choices(ids, k=rng.randint(2, 12)) for _ in range(3000)
    ]


def test_texts_of_byte_level_tokens_join_to_what_the_tokenizer_decodes(embedded):
    tokenizer = AutoTokenizer.from_pretrained(EMBEDDED_FOLDER)
    texts = TokenTexts(tokenizer)
    for tokens in random_sequences(ordinary_ids(tokenizer)):
        assert joined(texts, tokens) == tokenizer.decode(tokens, clean_up_tokenization_spaces=False)


@pytest.mark.parametrize(
    "text", ["Tom said: “Café?” 🙂🙂 漢字\n\tok", "naïve \u202e \x00 <script>", "e\u0301 👩‍👩‍👧"]
)
def test_a_text_survives_byte_level_tokens_whatever_it_says(embedded, text):
    tokenizer = AutoTokenizer.from_pretrained(EMBEDDED_FOLDER)
    tokens = tokenizer.encode(text, add_special_tokens=False)
    assert joined(TokenTexts(tokenizer), tokens) == text


def test_texts_of_sentencepiece_tokens_join_to_what_the_tokenizer_decodes(stories_folder):
    tokenizer = AutoTokenizer.from_pretrained(stories_folder)
    texts = TokenTexts(tokenizer)
    for tokens in random_sequences(
        [token for token in ordinary_ids(tokenizer) if not is_byte(tokenizer, token)]
    ):
        assert joined(texts, tokens).removeprefix(" ") == tokenizer.decode(tokens)


def test_a_text_survives_sentencepiece_tokens_whatever_it_says(stories_folder):
    tokenizer = AutoTokenizer.from_pretrained(stories_folder)
    text = "Tom said: “Café?” 🙂 漢字 <script>"
    tokens = tokenizer.encode(text, add_special_tokens=False)
    assert any(is_byte(tokenizer, token) for token in tokens)
    assert joined(TokenTexts(tokenizer), tokens).removeprefix(" ") == text


def is_byte(tokenizer: PreTrainedTokenizerFast, token: int) -> bool:
    return tokenizer.convert_ids_to_tokens(token).startswith("<0x")


def test_ids_beyond_the_vocabulary_and_control_tokens_have_texts_too(words):
    texts = TokenTexts(words)
    assert texts[70_000] == "<unused 70000>"
    assert texts[1] == "<end>"
    assert texts.is_special(1)
    assert not texts.is_special(5)


def test_control_tokens_are_those_that_transformers_skips():
    tokenizer = AutoTokenizer.from_pretrained(EMBEDDED_FOLDER)
    named = [AddedToken("<file_sep>", special=True), AddedToken("<think>", special=False)]
    tokenizer.add_tokens(named)
    texts, sequence = TokenTexts(tokenizer), tokenizer.encode("Hi<file_sep> <think>dear")
    assert [texts.is_special(token) for token in sequence if "<" in texts[token]] == [
        *(True, True, False)  # BOS, the new control token, the marker of a thought
    ]
    shown = [token for token in sequence if not texts.is_special(token)]
    assert joined(texts, shown) == tokenizer.decode(sequence, skip_special_tokens=True)
    assert "<file_sep>" in joined(texts, sequence)  # a token can still be named


def test_smollm2_shows_no_control_token(smollm2):
    tokenizer = smollm2._tokenizer
    for token in range(smollm2.card.vocab_size):
        skipped = not tokenizer.decode([token], skip_special_tokens=True)
        assert smollm2.is_special(token) == skipped, smollm2.text(token)


def test_the_sentencepiece_model_runs_end_to_end(stories_folder):
    model = load_model(str(stories_folder), device="cpu")
    settings = {"max_new_tokens": 12, "entropy_threshold": 1.0, "max_paths": 6}
    run = run_of(model, "Once upon a time", **settings)
    assert "".join(run.started.prompt_texts[1:]).strip() == "Once upon a time"
    assert len(run.samples) > 1
    assert all(sample.text.startswith((" ", ",")) for sample in run.samples)
