"""Tuning: which settings gain the most at the least cost, and how useful uncertainty scores are.

Read in this order: `grid` (the settings to try, and the result of one cell), `prompt_sets` (the
prompts to try them on), `measure` (from a run to its cell), `sweeping` (the whole sweep),
`executors` (where its runs are made), `report` (the files of a sweep).
"""
