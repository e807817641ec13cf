"""Questions with known answers, and how well the scores of uncertainty tell wrong answers from
right ones.
"""
