"""Speculative decoding: draft the next tokens cheaply, verify several of them in one forward pass.

`drafter` is the interface; `draft_model` and `ngram_lookup` implement it. `draft_length` chooses
how many tokens to draft, and `speculator` puts both together for one run. `stats` and `formulas`
say what speculation brought, and what it should bring.
"""
