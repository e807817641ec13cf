"""Speculative decoding: draft tokens, and the rule that accepts them.

Check it with: eab check drafter my_drafter.py
"""

from eab.engine.speculation.drafter import Drafter


class MyDrafter(Drafter):
    """Path 0 exists from the start. This beginning drafts nothing."""

    def propose(self, requests):
        """For each request, a list of at most request.limit tokens that may follow request.tokens,
        which are the prompt and the text of request.path so far.
        """
        return [[] for _ in requests]

    def fork(self, path, children):
        """The path ends; each child goes on with its tokens."""

    def release(self, path):
        """The path ends."""


def accept(draft, drawn):
    """How many tokens of a draft are accepted. One forward pass has told what the run draws in the
    place of each: drawn[i] is the token that follows draft[:i], so it has one token more.
    """
    return 0
