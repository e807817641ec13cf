"""Texts and prompts for comparing a model in fewer bits with the model as loaded."""

import json
from functools import cache
from typing import Final

from eab.assets import ASSETS

FOLDER: Final = ASSETS / "quantization"
FABLES: Final = FOLDER / "held_out.txt"
SEPARATOR: Final = "\n\n"


@cache
def texts() -> tuple[str, ...]:
    """Fables that are not in the training data of any bundled model."""
    return tuple(FABLES.read_text(encoding="utf-8").strip().split(SEPARATOR))


@cache
def known_entropies() -> dict[str, float]:
    """Prompts whose next word has a known distribution, and its entropy in bits."""
    entropies: dict[str, float] = json.loads(
        (FOLDER / "known_entropies.json").read_text(encoding="utf-8")
    )
    return entropies
