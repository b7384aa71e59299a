"""File attachments: upload to S3, validation, thumbnails and download.

Start with `model` (rules) and `service` (use cases). `warm`, `hot` and `cold` hold the data in
DynamoDB, Redis and S3. `media_worker` makes thumbnails; `sweep_worker` removes files without
messages.
"""
