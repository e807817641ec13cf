"""The limits of the fields of events: the range of each number, the length of each text and list.

Run files are untrusted: `eab.record.event_json` checks these limits on reading. They are wider
than what the engine makes.
"""

from typing import Annotated, Final, NamedTuple

from eab.config import MAX_DRAFT, MAX_NEW_TOKENS, MAX_PATHS
from eab.settings import MAX_TEXT

MAX_PROMPT_TOKENS: Final = 200_000
MAX_TOKEN_CHARACTERS: Final = 1000  # the longest tokens of known vocabularies have about 130
MAX_CANDIDATES: Final = 16
MAX_MESSAGES: Final = 256
MAX_ROLE: Final = 32  # characters


class Within(NamedTuple):
    """The allowed range of a number."""

    low: float
    high: float


class AtMost(NamedTuple):
    """The allowed length: characters of a text, elements of a tuple."""

    length: int


TokenId = Annotated[int, Within(0, 2**40)]
StepIndex = Annotated[int, Within(0, MAX_NEW_TOKENS)]
Count = Annotated[int, Within(0, 2**50)]  # of rows, bytes or tokens
Size = Annotated[int, Within(1, 2**40)]  # of a model
Nats = Annotated[float, Within(0.0, 100.0)]
LogProb = Annotated[float, Within(-1e6, 1e-3)]  # nats; rounding may lift it slightly above 0
Weight = Annotated[float, Within(0.0, 1.001)]
Seconds = Annotated[float, Within(0.0, 1e9)]

Role = Annotated[str, AtMost(MAX_ROLE)]
PromptText = Annotated[str, AtMost(MAX_TEXT)]
TokenText = Annotated[str, AtMost(MAX_TOKEN_CHARACTERS)]
ModelName = Annotated[str, AtMost(4096)]  # it may be the path of a folder
Word = Annotated[str, AtMost(100)]  # a device, a number format, a model family
Message = Annotated[str, AtMost(10_000)]

# For tuples: Annotated[tuple[TokenId, ...], PER_PROMPT]
PER_PROMPT: Final = AtMost(MAX_PROMPT_TOKENS)
PER_CHAT: Final = AtMost(MAX_MESSAGES)
PER_STEP: Final = AtMost(MAX_PATHS)
PER_DRAFT: Final = AtMost(MAX_DRAFT)
PER_PREDICTION: Final = AtMost(MAX_CANDIDATES)
