"""Speculative decoding: guess the next tokens cheaply, confirm several of them in one forward
pass.
"""
