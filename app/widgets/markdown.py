"""Text that people or models wrote, made safe for Streamlit's Markdown."""

import re

_MARKDOWN = re.compile(r"([\\`*_{}\[\]()#+\-.!|~<>$:&])")


def plain(text: str) -> str:
    """The same text with every sign that Markdown, LaTeX, HTML or emoji codes would read taken
    literally.
    """
    return _MARKDOWN.sub(r"\\\1", text)
