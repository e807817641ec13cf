"""Limits of event fields: the range of each number, the length of each text and list.

Run files are untrusted, so msgspec checks these limits when it reads one (eab.run.record.run_file).
The limits are wider than anything that the engine produces.
"""

from typing import Annotated, Final

from msgspec import Meta

from eab.config import MAX_DRAFT, MAX_LABEL, MAX_NEW_TOKENS, MAX_PATHS, MAX_SEED
from eab.settings import MAX_TEXT

MAX_PROMPT_TOKENS: Final = 200_000
MAX_TOKEN_CHARACTERS: Final = 1000  # the longest tokens of known vocabularies have about 130
MAX_CANDIDATES: Final = 16
MAX_MESSAGES: Final = 256
MAX_ROLE: Final = 32  # characters
MAX_PROCESSORS: Final = 64
MAX_LAYERS: Final = 1024  # per model
MAX_RULES: Final = 1000
MAX_RULE: Final = 500  # characters of a pattern

Whole = Annotated[int, Meta(ge=-MAX_SEED, le=MAX_SEED)]
PathId = Whole
TokenId = Annotated[int, Meta(ge=0, le=2**40)]
StepIndex = Annotated[int, Meta(ge=0, le=MAX_NEW_TOKENS)]
Count = Annotated[int, Meta(ge=0, le=2**50)]  # of rows, bytes or tokens
Size = Annotated[int, Meta(ge=1, le=2**40)]  # a dimension of a model
Nats = Annotated[float, Meta(ge=0.0, le=100.0)]
LogProb = Annotated[float, Meta(ge=-1e6, le=1e-3)]  # nats; rounding may raise it slightly above 0
Weight = Annotated[float, Meta(ge=0.0, le=1.001)]
Probability = Annotated[float, Meta(ge=0.0, le=1.001)]
Seconds = Annotated[float, Meta(ge=0.0, le=1e9)]

Role = Annotated[str, Meta(max_length=MAX_ROLE)]
PromptText = Annotated[str, Meta(max_length=MAX_TEXT)]
TokenText = Annotated[str, Meta(max_length=MAX_TOKEN_CHARACTERS)]
ModelName = Annotated[str, Meta(max_length=4096)]  # may be the path of a folder
Reward = Annotated[float, Meta(ge=-1e9, le=1e9)] | Annotated[str, Meta(max_length=100)]
Word = Annotated[str, Meta(max_length=100)]  # a device, a number format, a model family
Message = Annotated[str, Meta(max_length=10_000)]
LabelName = Annotated[str, Meta(min_length=1, max_length=MAX_LABEL)]
RuleText = Annotated[str, Meta(max_length=MAX_RULE)]

# For tuples: Annotated[tuple[TokenId, ...], PER_PROMPT]
PER_PROMPT: Final = Meta(max_length=MAX_PROMPT_TOKENS)
PER_CHAT: Final = Meta(max_length=MAX_MESSAGES)
PER_MODEL: Final = Meta(max_length=MAX_LAYERS)
PER_PROCESSOR: Final = Meta(max_length=MAX_PROCESSORS)
PER_RUN: Final = Meta(max_length=MAX_RULES)
PER_STEP: Final = Meta(max_length=MAX_PATHS)
PER_PATH: Final = Meta(max_length=MAX_NEW_TOKENS)
PER_TEXT: Final = Meta(min_length=1, max_length=MAX_NEW_TOKENS)
PER_DRAFT: Final = Meta(max_length=MAX_DRAFT)
PER_PREDICTION: Final = Meta(max_length=MAX_CANDIDATES)
