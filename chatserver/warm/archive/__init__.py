"""Archive metadata in DynamoDB, and access to the items to be archived.

To read the code, start with `manifests` (the segments of a chat) and `archivable_entries` (reading
and deleting old items). `restored_ranges` tracks temporarily restored entries.
"""
