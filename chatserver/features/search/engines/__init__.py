"""Search engines, which implement `chatserver.features.search.model.Engine`.

`sqlite_fts` stores the index in local files; `lance` stores it in the S3 bucket. `registry` opens
the configured engine.
"""
