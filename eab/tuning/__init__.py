"""Tuning: which settings give the most for the least, on prompts of one's own.

Read in this order: `grid` (the settings to try), `prompt_sets` (on which prompts), `items` (which
cells one model run may answer), `cell` (the result of one), `measuring` (from a run to its cell),
`outcomes` (what becomes of an item), `in_process` and `ray_actors` (where the items are run),
`journal` (what is finished, on disk), `sweeping` (all of it). Only `in_process` and `ray_actors`
need torch.
"""
