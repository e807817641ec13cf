"""Tuning: which settings gain the most at the least cost, and how useful uncertainty scores are.

Read in this order: `grid` (the settings to try), `prompt_sets` (the prompts to try them on),
`work_items` (the cells that one model run may answer), `cell` (the result of one cell), `measure`
(from a run to its cell), `in_process` and `ray_actors` (where items run), `journal` (the finished
cells), `sweeping` (the whole sweep).
"""
