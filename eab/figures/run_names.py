"""What names a run outside the page: in the name of a file, and under a picture."""

import hashlib
import re
from typing import Final

from eab.events import RunStarted
from eab.formatting import counted, excerpt
from eab.token_text import visible

_WORDS: Final = 40  # characters of the prompt in a file name
_PROMPT: Final = 120  # characters of the prompt under a picture
_NO_LETTERS: Final = re.compile(r"[\W_]+")


def file_stem(started: RunStarted) -> str:
    """The start of the prompt and six digits for the run: its prompt, model and settings."""
    words = _NO_LETTERS.sub("-", started.prompt.lower()[:_WORDS]).strip("-")
    return f"{words or 'run'}-{hashlib.sha256(repr(started).encode()).hexdigest()[:6]}"


def origin_words(started: RunStarted) -> str:
    """The prompt, the model and the settings that shape a tree, in one line."""
    config = started.config
    threshold = started.threshold_nats
    prompt = f"“{excerpt(visible(started.prompt), _PROMPT)}”"
    if started.imported:
        count = counted(started.imported, "imported sample")
        return f"{prompt} {started.model.full_name}, {count}."
    settings = [
        started.model.full_name,
        f"policy {config.policy}",
        *([f"threshold {threshold:.2f} nats"] if threshold is not None else []),
        f"branch factor {config.branch_factor}",
        f"at most {counted(config.max_paths, 'path')}",
        f"{counted(config.max_new_tokens, 'new token')}",
        f"temperature {config.temperature:g}",
        f"seed {config.seed}",
    ]
    return f"{prompt} {', '.join(settings)}."
