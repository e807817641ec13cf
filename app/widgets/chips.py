"""A text as chips, one per token, as a Streamlit component."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final

import streamlit as st

FOLDER: Final = Path(__file__).parent / "static"
_mount: Final[Callable[..., object]] = st.components.v2.component(
    "eab_chips",
    css=(FOLDER / "chips.css").read_text(encoding="utf-8"),
    js=(FOLDER / "chips.js").read_text(encoding="utf-8"),
)


def chips(tokens: Sequence[dict[str, str]], key: str) -> None:
    """Draw these tokens, as `eab.labs.variants.draft_pictures.chips` returns them."""
    _mount(key=key, data={"chips": list(tokens)})
