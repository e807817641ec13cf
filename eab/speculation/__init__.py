"""Speculative decoding: draft the next tokens cheaply, verify several of them in one forward pass.

`drafter` is the interface; `draft_model`, `ngram_lookup` and `run_ahead` implement it.
`draft_length` chooses how many tokens to draft, and `speculator` combines both for one run. `stats`
measures what speculation achieved; `formulas` predicts what it should achieve.
"""
