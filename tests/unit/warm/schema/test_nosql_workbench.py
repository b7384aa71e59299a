"""The NoSQL Workbench model follows the published format and contains every kind of row.

Sources of the format: `doc_source/workbench.Modeler.Edit.md` of
awsdocs/amazon-dynamodb-developer-guide (facets), the models in `examples/*/json` of
aws-samples/amazon-dynamodb-design-patterns (tables, facets with data, indexes), and models exported
by NoSQL Workbench 3 (`AWSService`, `Version`, `BillingMode`).
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any, Literal

import msgspec
import pytest

from chatserver.features.analytics import warm as analytics
from chatserver.features.attachments import warm as attachments
from chatserver.features.chat_preferences.warm import decode_pinned, decode_preferences
from chatserver.features.companions.warm.companions import VERSION
from chatserver.features.companions.warm.sessions import decode_session
from chatserver.features.companions.warm.user_memories import decode_memory
from chatserver.features.pins import warm as pins
from chatserver.features.privacy.warm.jobs import JOB
from chatserver.features.push.warm.subscriptions import SUBSCRIPTION
from chatserver.features.social.warm import fanouts, favorites
from chatserver.features.social.warm import social_items as social
from chatserver.warm.api_keys import KEY
from chatserver.warm.archive.manifests import ORPHAN, SEGMENT
from chatserver.warm.archive.restored_ranges import RANGE
from chatserver.warm.chats.directory_items import (
    CHAT,
    MEMBER,
    USER,
    decode_former,
)
from chatserver.warm.chats.legal_holds import decode_copy
from chatserver.warm.chats.logins import LOGIN
from chatserver.warm.chats.moderation import BAN, REPORT
from chatserver.warm.chats.stored_invitations import INVITATION
from chatserver.warm.dynamo.client import Item
from chatserver.warm.encryption.data_keys import decode_key
from chatserver.warm.messages.active_days import ANY_DAY, decode_days
from chatserver.warm.messages.messages import decode_item
from chatserver.warm.messages.removed_message_markers import decode_marker
from chatserver.warm.schema.tables import TABLES
from deploy.documents.nosql_workbench_facets import FACETS, find_facet
from deploy.documents.nosql_workbench_samples import samples
from workers.archive.reencryption import decode_progress

ROOT = Path(__file__).parents[4]
FILE = ROOT / "deploy" / "dynamodb" / "nosql-workbench.json"
DOCUMENT = ROOT / "docs" / "data-model.md"

Text = Annotated[str, msgspec.Meta(min_length=1)]
Date = Annotated[str, msgspec.Meta(pattern=r"^[A-Z][a-z]{2} \d{2}, \d{4}, \d{2}:\d{2} [AP]M$")]
AttributeType = Literal["S", "N", "B", "BOOL", "M", "L", "SS", "NS", "BS", "NULL"]


class Format(msgspec.Struct, forbid_unknown_fields=True):
    """A part of a model: no field may be missing or unknown."""


class Attribute(Format):
    AttributeName: Text
    AttributeType: AttributeType


class KeyAttribute(Format):
    AttributeName: Text
    AttributeType: Literal["S", "N", "B"]


class KeyAttributes(Format):
    PartitionKey: KeyAttribute
    SortKey: KeyAttribute | msgspec.UnsetType = msgspec.UNSET


class Alias(Format):
    PartitionKeyAlias: Text
    SortKeyAlias: Text


class DataAccess(Format):
    MySql: dict[str, str]


class FacetModel(Format):
    FacetName: Text
    KeyAttributeAlias: Alias
    TableData: list[dict[str, dict[AttributeType, Any]]]
    NonKeyAttributes: list[Text]
    DataAccess: DataAccess


class Projection(Format):
    ProjectionType: Literal["KEYS_ONLY", "INCLUDE", "ALL"]
    NonKeyAttributes: list[Text] | msgspec.UnsetType = msgspec.UNSET


class IndexModel(Format):
    IndexName: Text
    KeyAttributes: KeyAttributes
    Projection: Projection


class TableModel(Format):
    TableName: Text
    KeyAttributes: KeyAttributes
    NonKeyAttributes: list[Attribute]
    TableFacets: list[FacetModel]
    GlobalSecondaryIndexes: list[IndexModel]
    DataAccess: DataAccess
    BillingMode: Literal["PROVISIONED", "PAY_PER_REQUEST"]


class Metadata(Format):
    Author: Text
    DateCreated: Date
    DateLastModified: Date
    Description: Text
    AWSService: Literal["Amazon DynamoDB"]
    Version: Literal["3.0"]


class Model(Format):
    ModelName: Text
    ModelMetadata: Metadata
    DataModel: list[TableModel]


@pytest.fixture(scope="module")
def model() -> Model:
    """The committed file."""
    return msgspec.json.decode(FILE.read_bytes(), type=Model)


def test_model_follows_the_published_format(model: Model) -> None:
    """Names are unique; facets and indexes use attributes of their table; keys have their type."""
    names = Counter(facet.FacetName for table in model.DataModel for facet in table.TableFacets)

    assert [table.TableName for table in model.DataModel] == [table.name for table in TABLES]
    assert max(names.values()) == 1
    mixed: set[str] = set()
    for table in model.DataModel:
        types = {each.AttributeName: each.AttributeType for each in table.NonKeyAttributes}
        keys = _names_of(table.KeyAttributes)
        assert not types.keys() & keys.keys()
        types |= keys
        for index in table.GlobalSecondaryIndexes:
            assert _names_of(index.KeyAttributes).items() <= types.items()
        for facet in table.TableFacets:
            assert set(facet.NonKeyAttributes) <= types.keys() - keys.keys()
            for item in facet.TableData:
                assert item.keys() - keys.keys() <= set(facet.NonKeyAttributes)
                found = {name: next(iter(value)) for name, value in item.items()}
                assert all(each == types[name] for name, each in found.items() if name in keys)
                mixed |= {name for name, each in found.items() if each != types[name]}
                assert keys.keys() <= item.keys()
    # The model has one type per name, but these attributes are numbers in some rows.
    assert mixed <= {"first", "last", "progress", "version"}


def _names_of(keys: KeyAttributes) -> dict[str, AttributeType]:
    each = [keys.PartitionKey]
    if isinstance(keys.SortKey, KeyAttribute):
        each.append(keys.SortKey)
    return {key.AttributeName: key.AttributeType for key in each}


def test_each_facet_has_an_item_and_each_item_one_facet(model: Model) -> None:
    """Each facet has an example, and no key appears twice."""
    for table, data in zip(TABLES, model.DataModel, strict=True):
        items = list(samples(table))
        keys = [tuple(str(item[name]) for name in table.key.names) for item in items]
        assert max(Counter(keys).values()) == 1
        for item in items:
            assert sum(each.has(item) for each in FACETS if each.table is table) == 1, item
        shown = {facet.FacetName: len(facet.TableData) for facet in data.TableFacets}
        assert sum(shown.values()) == len(items)
        empty = {name for name, count in shown.items() if not count}
        assert empty == {each.name for each in FACETS if each.table is table and each.index}
        indexes = {each.index.name for each in FACETS if each.table is table and each.index}
        assert indexes == {index.name for index in table.indexes}


def test_facets_are_the_rows_of_the_data_model_document() -> None:
    """Each documented kind of row is a facet with the same keys."""
    text = DOCUMENT.read_text(encoding="utf-8")
    documented = set()
    for table in ("directory", "chat_session", "social"):
        section = text.partition(f"### `{table}`")[2].partition("\n### ")[0]
        rows = section.partition("| `PK` | `SK` |")[2].partition("\n\n")[0].splitlines()[2:]
        for row in rows:
            _, name, partition, sort, _ = row.split("|", 4)
            documented.add((table, name.strip(), _plain(partition), _plain(sort)))
    shown = {
        (each.table.name, each.name, each.partition, each.sort)
        for each in FACETS
        if each.index is None and each.table.name != "messages"
    }

    assert {(t, name.lower(), *keys) for t, name, *keys in documented} == {
        (t, name.lower(), *keys) for t, name, *keys in shown
    }


def _plain(cell: str) -> str:
    return ", ".join(re.findall(r"`([^`]+)`", cell))


DECODERS: dict[str, Callable[[Item], object]] = {
    "Messages of a chat, by time": decode_item,
    "Messages of a busy chat, in shards": decode_item,
    "Markers of removed messages": decode_marker,
    "Versions kept under a legal hold": decode_copy,
    "Active session": decode_session,
    "Old session": decode_session,
    "Memory": decode_memory,
    "Info": social.INFO_ITEM.decode,
    "Count": social.COUNTS.decode,
    "Follower": social.decode_edge,
    "Following": social.decode_edge,
    "Post": social.POST.decode,
    "Likelist": social.decode_like,
    "Favorite": favorites._decode,
    "Timeline": social.decode_entry,
    "User": USER.decode,
    "Login": LOGIN.decode,
    "API key": KEY.decode,
    "Invitation": INVITATION.decode,
    "Chat that a user left": decode_former,
    "Chat": CHAT.decode,
    "Member": MEMBER.decode,
    "Data key of the tenant": decode_key,
    "Re-encryption": decode_progress,
    "Version of a companion": VERSION.decode,
    "Ban": BAN.decode,
    "Active days of a chat": decode_days,
    "Pinned message": pins.PIN.decode,
    "Preferences of a chat": decode_preferences,
    "Pinned chats of a user": decode_pinned,
    "Report": REPORT.decode,
    "Push subscription": SUBSCRIPTION.decode,
    "File": attachments.FILE.decode,
    "Job": JOB.decode,
    "Post in fan-out": fanouts.decode_job,
    "Likes of a deleted post": fanouts.decode_job,
    "Author merged on read": fanouts.MERGED_ITEM.decode,
    "Segment": SEGMENT.decode,
    "Record of an object": ORPHAN.decode,
    "Restored range": RANGE.decode,
    "Exported range": analytics.UNIT.decode,
}


def test_each_item_is_decoded_by_its_decoder() -> None:
    """For rows without a decoder, see `tests/integration/warm/schema/test_nosql_workbench.py`."""
    decoded = Counter[str]()
    for table in TABLES:
        for item in samples(table):
            facet = find_facet(table, item)
            assert facet is not None
            if facet.name in DECODERS:
                assert DECODERS[facet.name](item) != ANY_DAY
                decoded[facet.name] += 1

    assert decoded.keys() == DECODERS.keys()
