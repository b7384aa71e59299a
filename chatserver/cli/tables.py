"""`chatserver tables apply`: create the DynamoDB tables and the bucket."""

from __future__ import annotations

import contextlib
from typing import Annotated

import click

from chatserver.cli.process_setup import prepare
from chatserver.command_options import with_options
from chatserver.errors import ConfigError


@click.group()
def tables() -> None:
    """Create the DynamoDB tables and the S3 bucket."""


@tables.command()
@with_options
async def apply(
    *, bucket: Annotated[bool, "--bucket/--no-bucket", "Also create the S3 bucket."] = True
) -> None:
    """Create the tables and the bucket if they are missing. Deletes nothing; safe to run again."""
    from chatserver.cold.bucket import apply_bucket
    from chatserver.cold.client import open_s3
    from chatserver.warm.dynamo.client import TableMissing
    from chatserver.warm.dynamo.connections import open_dynamodb
    from chatserver.warm.schema.active_version import SchemaVersions
    from chatserver.warm.schema.provisioning import apply_tables

    settings = prepare("tables")

    async with open_dynamodb(settings.warm) as dynamodb:
        schema = SchemaVersions(dynamodb.for_feature("schema"))
        with contextlib.suppress(TableMissing):
            if blocked := (await schema.get_state()).blocked:
                raise ConfigError(f"{blocked}; see `chatserver tenants list`")
        client = dynamodb.for_feature("operations")
        for change in await apply_tables(client, settings.warm):
            click.echo(f"{change.action:<8} {change.table}: {change.what}")
    if not bucket:
        return
    async with open_s3(settings.cold) as store:
        for created in await apply_bucket(store, settings.cold):
            click.echo(f"{created.action:<8} {store.bucket}: {created.what}")
