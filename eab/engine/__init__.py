"""The engine: one forward pass per step for all live paths, of one run or of several.

In a step, `Scheduler._choose` chooses the runs, `Generation.prepare` returns the batch of each,
`run_pass` computes them all, and `Generation.decide` turns the predictions into events.

Read in this order: `request` (prompt and settings), `build` (puts the parts of a run together),
`generation` (the state of one run), `paths` (that of its paths), `forward_pass` (one step of
several runs), `handle` (one run as a coroutine), `scheduler` (which runs share which pass), `loop`
(one run, or many). `job` says what a server is to compute.
"""
