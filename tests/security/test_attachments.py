"""Attachments under attack: rows 2 and 25 of docs/security.md, and its section on content.

Access is tested on the use cases, with real stores. The authorization matrix covers the routes, and
tests/security/test_browser_content.py covers browsers.
"""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from chatserver.domain.ids import ChatId
from chatserver.errors import BadRequest, ChatError, ClientError, Conflict, NotFound
from chatserver.features.attachments.file_types import get_served_type
from chatserver.features.attachments.model import build_content_disposition, parse_file_name
from chatserver.protocol import frames
from tests.integration.features.attachments.support import FileStack, picture

pytest_plugins = ["tests.integration.features.attachments.fixtures"]
in_world = pytest.mark.asyncio(loop_scope="session")
SCRIPT = b"*/=1;alert(document.domain)//"


@in_world
@pytest.mark.parametrize(
    ("content", "changes"),
    [
        (b"0123456789x", {}),
        (b"012345678", {}),
        (b"0123456789", {"Content-Type": "text/html"}),
        (b"0123456789", {"key": "attachments/another/file"}),
        (b"0123456789", {"x-amz-checksum-sha256": None}),
        (b"0123456789", {"policy": "e30="}),
    ],
    ids=["larger", "smaller", "another type", "another key", "no checksum", "another policy"],
)
async def test_upload_form_modified_by_the_client_is_refused_by_s3(
    store: FileStack, content: bytes, changes: dict[str, str | None]
) -> None:
    """A form accepts only the file that it was created for."""
    chat, alice, _bob, _carol = await store.open_chat()
    begun = await store.begin(alice, chat, b"0123456789", "a.txt", "text/plain")

    assert await store.post(begun, content, **changes) in (400, 403)
    assert await store.list_keys(begun.file.id) == []


@in_world
async def test_upload_form_used_after_expiry_is_refused_by_s3(store: FileStack) -> None:
    """An expired form cannot be used."""
    chat, alice, _bob, _carol = await store.open_chat()
    begun = await store.begin(alice, chat, b"0123456789")
    old = await store.store.sign_upload(f"uploads/{begun.file.id}", {}, 10, -1)
    late = begun._replace(form=type(begun.form)(*old))  # type: ignore[misc,call-arg]  # a tuple

    assert await store.post(late, b"0123456789") == 403


@in_world
async def test_upload_form_reused_after_completion_does_not_change_the_file(
    store: FileStack,
) -> None:
    """Readers get the inspected content, whatever is uploaded to the same key later."""
    chat, alice, _bob, _carol = await store.open_chat()
    begun = await store.begin(alice, chat, b"0123456789")
    assert await store.post(begun, b"0123456789") == 204
    await store.uploads.finish(alice, begun.file.id)

    # The test S3 server accepts it; AWS would refuse the wrong checksum.
    await store.post(begun, b"9876543210")
    await store.uploads.finish(alice, begun.file.id)

    assert (await store.download(alice, begun.file.id))[1] == b"0123456789"


@in_world
@pytest.mark.parametrize(
    ("declared", "uploaded", "type_", "error"),
    [
        (b"0123456789", b"9876543210", "text/plain", BadRequest),
        (b"<script>1</script>", b"<script>1</script>", "image/png", BadRequest),
        (b"<html>", b"<html>", "application/pdf", BadRequest),
        (b"0123456789", None, "text/plain", Conflict),
    ],
    ids=["another content", "html as png", "html as pdf", "nothing"],
)
async def test_upload_with_undeclared_content_is_refused(
    store: FileStack, declared: bytes, uploaded: bytes | None, type_: str, error: type[ChatError]
) -> None:
    """Content is inspected before the file can be sent."""
    chat, alice, _bob, _carol = await store.open_chat()
    begun = await store.begin(alice, chat, declared, "picture.png", type_)
    if uploaded is not None:
        assert await store.post(begun, uploaded) == 204

    with pytest.raises(error):
        await store.uploads.finish(alice, begun.file.id)

    with pytest.raises(Conflict):
        await store.send(alice, chat, begun.file.id)


@in_world
async def test_html_and_svg_uploads_are_served_as_octet_stream(store: FileStack) -> None:
    """HTML and SVG can be sent; a browser downloads them as binary files."""
    chat, alice, _bob, _carol = await store.open_chat()
    for name, type_ in (("x.html", "text/html"), ("x.svg", "image/svg+xml")):
        file = await store.upload(alice, chat, b"<svg onload=alert(1)>", name, type_)

        headers, _ = await store.download(alice, file.id)

        assert headers["content-type"] == "application/octet-stream"
        assert headers["content-disposition"].startswith("attachment")


@in_world
async def test_file_of_another_user_is_not_found(store: FileStack) -> None:
    """A non-member, a user who knows the id, and another chat cannot access a file."""
    chat, alice, bob, carol = await store.open_chat()
    other = ChatId((await store.api.chats.open_direct(bob, carol)).chat)
    file = await store.upload(alice, chat, b"secret")

    with pytest.raises(NotFound):
        await store.begin(carol, chat, b"x")
    with pytest.raises(NotFound):
        await store.uploads.finish(bob, file.id)
    for sender, to in ((bob, chat), (bob, other), (carol, other)):
        with pytest.raises(NotFound):
            await store.send(sender, to, file.id)
    # Before it is sent, only its owner can access it.
    for reader in (bob, carol):
        with pytest.raises(NotFound):
            await store.download(reader, file.id)
    ack = await store.send(alice, chat, file.id)
    mine = await store.send(bob, other, body="I know an id")
    for reference in ({"seq": ack.seq}, {"seq": mine.seq}, {}):
        with pytest.raises(NotFound):
            await store.download(carol, file.id, **reference)
    with pytest.raises(NotFound):  # a message without the file
        await store.download(bob, file.id, seq=ack.seq + 1)


@in_world
async def test_file_of_a_deleted_or_left_message_is_not_found(
    store: FileStack,
) -> None:
    """Tested are deletion for oneself or for everyone, and leaving the chat."""
    _, alice, bob, carol = await store.open_chat()
    create = frames.CreateChat(0, "r", [bob, carol], "three")
    chat = ChatId((await store.api.chats.create_chat(alice, create)).chat)
    file = await store.upload(alice, chat, b"secret")
    ack = await store.send(alice, chat, file.id)
    for reader in (bob, carol):
        await store.download(reader, file.id, seq=ack.seq)

    await store.api.message_change_service.change(carol, frames.Delete(0, chat, ack.seq, "h", "me"))
    await store.api.membership.change(bob, frames.Leave(0, chat, "l"))

    for reader in (bob, carol):
        with pytest.raises(NotFound):
            await store.download(reader, file.id, seq=ack.seq)
    assert (await store.download(alice, file.id, seq=ack.seq))[1] == b"secret"
    await store.api.message_change_service.change(alice, frames.Delete(0, chat, ack.seq, "d"))
    with pytest.raises(NotFound):
        await store.download(alice, file.id, seq=ack.seq)


@in_world
async def test_thumbnail_of_an_image_with_appended_script_has_no_script(store: FileStack) -> None:
    """A thumbnail has none of the data appended to the image.

    The file itself is only downloaded.
    """
    chat, alice, bob, _ = await store.open_chat()
    file = await store.upload(alice, chat, picture((8, 8), "GIF") + SCRIPT, "a.gif", "image/gif")
    await store.process_media(file.id)

    ack = await store.send(alice, chat, file.id)

    _, thumb = await store.download(bob, file.id, seq=ack.seq, is_thumb=True)
    headers, content = await store.download(bob, file.id, seq=ack.seq)
    assert SCRIPT in content and SCRIPT not in thumb
    assert headers["content-disposition"].startswith("attachment")


@pytest.mark.parametrize(
    "name",
    [
        "../../etc/passwd",
        "..\\..\\boot.ini",
        "/etc/passwd",
        "C:evil.exe",
        "a\r\nSet-Cookie: x=1",
        "a\x00.png",
        "photo\u202egnp.exe",
        "..",
        "",
        "a" * 121,
    ],
)
def test_file_name_with_path_or_deceptive_characters_is_refused(name: str) -> None:
    """Path separators, control characters, direction marks, and empty or long names are refused."""
    with pytest.raises(ClientError):
        parse_file_name(name)


@given(st.text(st.characters(exclude_categories=["Cs"]), max_size=60))
def test_content_disposition_of_any_name_is_one_ascii_line(text: str) -> None:
    """The header has no line breaks and no unescaped quotes."""
    try:
        name = parse_file_name(text)
    except ClientError:
        return

    header = build_content_disposition(name)

    assert header.isascii() and header.isprintable()
    assert header.startswith('attachment; filename="') and header.count('"') == 2


@pytest.mark.parametrize(
    "type_",
    ["text/html", "image/svg+xml", "text/xml", "application/xhtml+xml", "text/javascript", "x/y"],
)
def test_executable_content_type_is_served_as_octet_stream(type_: str) -> None:
    """Only types on the allow list keep their content type."""
    assert get_served_type(type_) == "application/octet-stream"
