"""Background job of analytics.

`passes` finds what is to be exported. `exporter` reads units and writes their files; `unit_source`
reads the entries of a unit. `erasure` updates the files after an erasure. `compaction` moves the
rows of small files into one, and `file_locations` finds them there. Start with `exporter`.
"""
