"""Speculative decoding: draft the next tokens cheaply, verify several of them in one forward pass.

`drafter` is the interface, with drafters that need no model; `draft_model` is one with a model.
`speculator` chooses how many tokens to draft in one run. `stats` measures what speculation
achieved, and predicts what it should achieve.
"""
