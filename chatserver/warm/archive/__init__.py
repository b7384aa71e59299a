"""Archive metadata in DynamoDB, and the items that the archive moves.

Start with `manifests` (which segments exist) and `archivable_entries` (reading and removing old
items). `restored_ranges` tracks temporarily restored entries; `markers` stand for expired and lost
messages.
"""
