"""The training text: reads the files, holds out a validation set, tokenises, and mixes a pass over
everything.

A pass contains every TinyStories document once, some of the other stories, and synthetic documents,
which are generated for each pass and so never repeat. The shares of a pass are in tokens.
"""

import hashlib
import json
import random
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

import numpy as np
import numpy.typing as npt
from tokenizers import Tokenizer

from training import synthetic
from training.tokenizer import END_ID, END_OF_TEXT, train_tokenizer

MAIN_FILES = ("tinystories_train.txt", "tinystories_train_truecased.txt")
OTHER_FILES = ("storybooks_ccby.txt", "more_bookdash_ccby.txt", "fables_mit.txt")
OTHER_SHARE = 0.06
SYNTHETIC_SHARE = 0.22
ASKED_SHARE = 0.06
VALIDATION_EVERY = 100
LONGEST_STORY = 20_000
SYNTHETIC_FOR_TOKENIZER = 30_000
TOPICS = [
    "bird", "dog", "cat", "bear", "rabbit", "fish", "frog", "mouse", "duck", "lion", "monkey", "fox",
    "horse", "cow", "pig", "bee", "butterfly", "dragon", "squirrel", "princess", "king", "boat", "train",
    "car", "ball", "tree", "flower", "doll", "kite", "cake", "garden",
]  # fmt: skip

Tokens = npt.NDArray[np.uint16]


@dataclass(frozen=True)
class Corpus:
    """The tokenised documents. Each begins with the end-of-text token."""

    main: list[Tokens]
    other: list[Tokens]
    validation: list[Tokens]


def read_documents(path: Path) -> list[str]:
    parts = path.read_text(encoding="utf-8").split(END_OF_TEXT)
    return [text for part in parts if (text := part.strip())]


def _read_all(data: Path, names: Sequence[str]) -> list[str]:
    return [text for name in names for text in read_documents(data / name)]


def _as_request(text: str, rng: random.Random) -> str:
    """Turn a story into a dialogue that asks for it, usually by topic if one stands out."""
    counts = {topic: len(re.findall(rf"\b{topic}\b", text)) for topic in TOPICS}
    topic = max(counts, key=lambda name: counts[name])
    article = "an" if topic[0] in "aeiou" else "a"
    about = f" about {article} {topic}" if counts[topic] >= 3 and rng.random() < 0.8 else ""
    return f"User: Tell me a story{about}.\nAssistant: {text}"


def _with_requests(texts: Sequence[str], seed: int) -> list[str]:
    rng = random.Random(seed)
    return [_as_request(text, rng) if rng.random() < ASKED_SHARE else text for text in texts]


def tokenise(tokenizer: Tokenizer, texts: Sequence[str]) -> list[Tokens]:
    """The token ids of each text, after an end-of-text token."""
    encodings = tokenizer.encode_batch(list(texts), add_special_tokens=False)
    return [np.array([END_ID, *encoding.ids], dtype=np.uint16) for encoding in encodings]


def load_tokenizer(data: Path, cache: Path, vocab_size: int, seed: int) -> Tokenizer:
    """Load the tokenizer from the cache, or train a new one on all kinds of text."""
    path = cache / f"tokenizer-{vocab_size}.json"
    if not path.exists():
        invented = list(islice(synthetic.documents(seed), SYNTHETIC_FOR_TOKENIZER))
        texts = _read_all(data, MAIN_FILES) + _read_all(data, OTHER_FILES) + invented
        cache.mkdir(parents=True, exist_ok=True)
        train_tokenizer(texts, vocab_size).save(str(path))
    return Tokenizer.from_file(str(path))


def load_corpus(data: Path, cache: Path, tokenizer: Tokenizer, seed: int) -> Corpus:
    """Read and tokenise the files once; later calls read the cache."""
    names = MAIN_FILES + OTHER_FILES
    sizes = [(name, (data / name).stat().st_size) for name in names]
    settings = json.dumps([tokenizer.to_str(), sizes, seed, ASKED_SHARE, LONGEST_STORY])
    path = cache / f"tokens-{hashlib.sha256(settings.encode()).hexdigest()[:16]}.npz"
    if not path.exists():
        # A longer "story" is many stories whose separators were lost.
        main = [text for text in _read_all(data, MAIN_FILES) if len(text) <= LONGEST_STORY]
        validation = main[::VALIDATION_EVERY]
        del main[::VALIDATION_EVERY]
        np.savez(
            path,
            main=np.concatenate(tokenise(tokenizer, _with_requests(main, seed))),
            other=np.concatenate(tokenise(tokenizer, _read_all(data, OTHER_FILES))),
            validation=np.concatenate(tokenise(tokenizer, validation)),
        )
    with np.load(path) as arrays:
        return Corpus(*(_split(arrays[name]) for name in ("main", "other", "validation")))


def _split(tokens: Tokens) -> list[Tokens]:
    starts = np.flatnonzero(tokens == END_ID)[1:]
    return np.split(tokens, starts)


def _up_to(documents: Sequence[Tokens], budget: int) -> Iterator[Tokens]:
    for document in documents:
        if budget <= 0:
            return
        budget -= len(document)
        yield document


def mixed_pass(corpus: Corpus, tokenizer: Tokenizer, number: int, seed: int) -> Tokens:
    """All tokens of a pass, with documents in random order. Equal arguments give equal tokens."""
    rng = random.Random(f"{seed}/{number}")
    main_size = sum(map(len, corpus.main))
    whole = main_size / (1 - OTHER_SHARE - SYNTHETIC_SHARE)
    other = rng.sample(corpus.other, len(corpus.other))
    chosen = corpus.main + list(_up_to(other, int(whole * OTHER_SHARE)))
    stream = synthetic.documents(seed + 1000 * (number + 1))
    budget = int(whole * SYNTHETIC_SHARE)
    while budget > 0:
        batch = tokenise(tokenizer, list(islice(stream, 2000)))
        chosen += batch
        budget -= sum(map(len, batch))
    rng.shuffle(chosen)
    return np.concatenate([*chosen, np.array([END_ID], dtype=np.uint16)])
