"""The size limits of a run file: just enough for any run that its settings allow."""

from dataclasses import dataclass
from typing import Final

from eab.config import MAX_NEW_TOKENS, MAX_PATHS, BranchingConfig
from eab.errors import RecordError

MOST_TOKENS: Final = MAX_PATHS * MAX_NEW_TOKENS  # per run, with the largest settings
MAX_LINE_BYTES: Final = 8 * 2**20


@dataclass(frozen=True, slots=True)
class Limits:
    """Upper limits on the size of a run file."""

    text_bytes: int  # bytes of the unpacked file
    lines: int  # its lines
    values: int  # numbers and texts in them
    paths: int  # all paths of the run


SMALL: Final = Limits(32 * 2**20, 200_000, 3_000_000, 20_000)  # allowed for every file
# Limits per token that the settings allow. Real runs have up to 500 bytes, 4 lines, 45 values and
# half a path per token (embedded model and SmolLM2, every policy, four caches, prompt lookup).
OF_A_TOKEN: Final = Limits(4096, 16, 200, 2)
# JSON bytes of the text of all paths plus all leaves: allowed for every file, and per token that
# the file holds. Leaves repeat the text that they share: if every 60th token of 64 paths ends a
# text, they have 80 bytes per token after 2,000 steps.
SMALL_TREE_BYTES: Final = 2 * 2**20
TREE_BYTES_OF_A_TOKEN: Final = 256


class Amounts:
    """Counts the contents of a file, line by line, and refuses files that exceed a limit."""

    def __init__(self, name: str, most_tokens: int = MOST_TOKENS) -> None:
        self.limits = SMALL
        self._name, self._most_tokens = name, most_tokens
        self._bytes = self._lines = self._values = 0

    def allow(self, config: BranchingConfig) -> None:
        """Raise the limits to fit a run with these settings."""
        tokens = min(config.max_paths * config.max_new_tokens, self._most_tokens)
        self.limits = Limits(
            max(SMALL.text_bytes, tokens * OF_A_TOKEN.text_bytes),
            max(SMALL.lines, tokens * OF_A_TOKEN.lines),
            max(SMALL.values, tokens * OF_A_TOKEN.values),
            max(SMALL.paths, tokens * OF_A_TOKEN.paths),
        )

    def add(self, line: str) -> None:
        """Count a line; RecordError if a limit is now exceeded."""
        self._bytes += len(line) + 1
        self._lines += 1
        self._values += line.count(",")
        self.check("bytes in one line", len(line), MAX_LINE_BYTES)
        self.check("unpacked bytes", self._bytes, self.limits.text_bytes)
        self.check("lines", self._lines, self.limits.lines)
        self.check("values", self._values, self.limits.values)

    def check_tree(self, text_bytes: int, tokens: int) -> None:
        """Check the text bytes of a tree with this many tokens."""
        allowed = max(SMALL_TREE_BYTES, tokens * TREE_BYTES_OF_A_TOKEN)
        self.check("bytes of text in its tree", text_bytes, allowed, "number of tokens allows")

    def check(self, what: str, count: int, allowed: int, by: str = "settings allow") -> None:
        """Raise RecordError if `count` is more than is allowed."""
        if count > allowed:
            raise RecordError(f"{self._name} has more than {allowed:,} {what}, more than its {by}")
