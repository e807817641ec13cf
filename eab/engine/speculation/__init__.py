"""Speculative decoding: draft the next tokens cheaply, verify several of them in one forward pass.

`drafter` has the drafters and their interface. `speculator` chooses how many tokens to draft in one
run, and verifies them. `stats` measures what speculation achieved, and predicts what it should
achieve.
"""
