"""Sampling: from logits to a token.

Check it with: eab check sampler my_sampler.py
"""

import torch


def sample(logits, generator, temperature, top_k, top_p):
    """Draw a token.

    1. Divide the logits, a float64 tensor (V,), by the temperature.
    2. Keep the top_k largest; 0 keeps all.
    3. Of these, keep the most likely ones until their probabilities sum to top_p or more; 1 keeps
       all. The token that reaches top_p is kept, too.
    4. Draw one of those that are left, in proportion to its probability. All random numbers come
       from the generator, such as torch.rand((), generator=generator).

    Returns an int.
    """
    return int(torch.argmax(logits))
