"""Tuning: which settings give the most for the least, on your own prompts; and what the scores of
uncertainty are worth on questions with known answers.

Read in this order: `grid` (the settings to try), `prompt_sets` (on which prompts), `work_items`
(which cells one model run may answer), `cell` (the result of one), `measure` (from a run to its
cell), `in_process` and `ray_actors` (where the items are run), `journal` (what is finished, on
disk), `sweeping` (all of it). Only `in_process`, `ray_actors` and `answering` need torch.
"""
