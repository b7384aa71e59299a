"""The analytics worker. Start with `exporter`.

`export_passes` finds the entries to export. `export_unit_reader` reads a unit (a range of entries),
and `exporter` writes its files. `erasure` rewrites files after an erasure. `compaction` merges
small files, and `file_locations` finds the file that contains the rows of a batch of units.
"""
