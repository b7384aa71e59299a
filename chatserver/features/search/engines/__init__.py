"""Engines of the search index, behind `chatserver.features.search.model.Engine`.

`sqlite_fts` is the embedded default; `lance` keeps the index in the S3 bucket. `registry` opens the
configured one.
"""
