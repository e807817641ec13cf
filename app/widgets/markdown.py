"""Text from users or models, made safe for Streamlit's Markdown."""

import re

_MARKDOWN = re.compile(r"([\\`*_{}\[\]()#+\-.!|~<>$:&])")


def plain(text: str) -> str:
    """The text with every character escaped that has a meaning in Markdown, LaTeX or HTML."""
    return _MARKDOWN.sub(r"\\\1", text)
