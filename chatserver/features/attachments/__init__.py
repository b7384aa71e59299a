"""File attachments: upload to S3, validation, thumbnails and download.

Start with `model` (rules), `service.uploads` and `service.download_links` (use cases). `warm`,
`hot` and `cold` read and write the data in DynamoDB, Redis and S3. `worker.media` creates
thumbnails. `worker.sweep` deletes files that no message references.
"""

from chatserver.features.registry import BACKGROUND_NICE, Feature, Worker

FEATURE = Feature(
    name="attachments",
    routes=("chatserver.features.attachments.routes:build_attachments_routes",),
    workers={
        "media": Worker(
            "chatserver.features.attachments.worker.media:run_media",
            "creates thumbnails of images",
            nice=BACKGROUND_NICE,
        ),
        "sweep": Worker(
            "chatserver.features.attachments.worker.sweep:run_sweep",
            "deletes unreferenced files and message bodies",
            nice=BACKGROUND_NICE,
        ),
    },
    ports={
        "resolve_files": "chatserver.features.attachments.container:resolve_files",
        "load_file": "chatserver.features.attachments.container:load_file",
        "record_files": "chatserver.features.attachments.container:record_files",
        "release_files": "chatserver.features.attachments.container:release_files",
    },
    gateway_ports={
        "resolve_files": "chatserver.features.attachments.gateway_container:resolve_files",
    },
)
