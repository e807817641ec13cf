"""The texts and prompts on which a model in fewer bits is compared with the model as loaded."""

import json
from functools import cache
from typing import Final

from eab.assets import ASSETS

FOLDER: Final = ASSETS / "quantization"
FABLES: Final = FOLDER / "held_out.txt"
SEPARATOR: Final = "\n\n"


@cache
def texts() -> tuple[str, ...]:
    """Fables that no bundled model has seen."""
    return tuple(FABLES.read_text(encoding="utf-8").strip().split(SEPARATOR))


@cache
def known_entropies() -> dict[str, float]:
    """Prompts whose next word was drawn from a known distribution, and the entropy (bits) there."""
    found: dict[str, float] = json.loads(
        (FOLDER / "known_entropies.json").read_text(encoding="utf-8")
    )
    return found
