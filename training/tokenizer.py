"""The tokenizer: byte-level BPE, one token per digit, ``<|endoftext|>`` as the only special token.

On the byte level, every text can be encoded and is decoded unchanged. Splitting numbers into digits
lets a small model learn small sums.
"""

from collections.abc import Iterable

from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import PreTrainedTokenizerFast

END_OF_TEXT = "<|endoftext|>"
END_ID = 0


def train_tokenizer(texts: Iterable[str], vocab_size: int) -> Tokenizer:
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Digits(individual_digits=True),
            pre_tokenizers.ByteLevel(add_prefix_space=False),
        ]
    )
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=vocab_size,
        special_tokens=[END_OF_TEXT],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator(texts, trainer)
    if tokenizer.token_to_id(END_OF_TEXT) != END_ID:
        raise RuntimeError(f"{END_OF_TEXT} must have id {END_ID}")
    return tokenizer


def for_transformers(tokenizer: Tokenizer, max_length: int) -> PreTrainedTokenizerFast:
    """The tokenizer in the form that transformers uses and saves."""
    return PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        bos_token=END_OF_TEXT,
        eos_token=END_OF_TEXT,
        pad_token=END_OF_TEXT,
        add_bos_token=True,  # a prompt is the beginning of a document, as in training
        clean_up_tokenization_spaces=False,
        model_max_length=max_length,
    )
