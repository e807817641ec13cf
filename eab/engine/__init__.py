"""The decoding loop: one forward pass per step for all live paths.

Read in this order: `request` (what a run is asked for), `build` (the parts of a run, put together),
`loop` (the loop itself), `generation` (the state of one run), `lookahead` (the state of one path).
`continuing` and `sweeping` make runs from other runs and for several settings.
"""
