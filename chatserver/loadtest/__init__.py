"""The load tool: many users at once, every message checked; see docs/load.md.

A coordinator (`coordinator`) starts worker processes (`worker`), which speak by lines of JSON. In a
worker a `crowd` of `device`s acts at the times that `pacing` fixes, and a `checker` judges what
comes. What all of them saw is merged by `histogram` and `result`, and drawn by `page`.
"""
