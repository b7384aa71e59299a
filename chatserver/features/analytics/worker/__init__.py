"""The analytics worker. Start with `exporter`.

`export_passes` finds the entries to export. `export_unit_reader` reads the entries of a unit, and
`exporter` writes its files. `erasure` rewrites files after an erasure. `compaction` merges small
files, and `file_locations` finds the file that contains the rows of a batch.
"""
