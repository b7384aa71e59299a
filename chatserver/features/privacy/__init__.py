"""Data export and account erasure, requested by a user or the host application and run as jobs.

Start with `service` (use cases) and `job_worker` (execution of jobs). `export_worker` and
`erasure_worker` implement the two kinds of job.
"""

from chatserver.features.registry import Feature

FEATURE = Feature(name="privacy")
