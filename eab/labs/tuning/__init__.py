"""Tuning: which settings give the most for the least, and what scores of uncertainty are worth.

Read in this order: `grid` (the settings to try), `prompt_sets` (on which prompts), `work_items`
(which cells one model run may answer), `cell` (the result of one), `measure` (from a run to its
cell), `in_process` and `ray_actors` (where items run), `journal` (what is finished), `sweeping`
(all of it).
"""
