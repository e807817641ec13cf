"""The engine: one forward pass per step for all live paths, of one run or of several.

Read in this order: `request` (what a run is asked for), `build` (the parts of a run, put together),
`generation` (the state of one run), `lookahead` (the state of one path), `shared_pass` (one step of
several runs), `passes` (the passes that one run needs), `scheduler` (which runs share which pass),
`loop` (one run alone), `many_runs` (many, and what each took). `continuing` and `variants` make
runs from other runs and for several settings.
"""
