"""Commands of the client SDK that use the HTTP API: files and the social graph."""

from __future__ import annotations

from pathlib import Path

from chatserver.client.files import FilesApi
from chatserver.client.http_api import HttpApi
from chatserver.client.social import SocialApi
from chatserver.errors import BadRequest
from chatserver.protocol.frames import Attachment


class HttpCalls:
    """The commands. Raises BadRequest without `api_url`."""

    _api: HttpApi | None

    @property
    def social(self) -> SocialApi:
        """Follows, posts, timelines and favorites."""
        return SocialApi(self._http_api())

    async def upload(
        self,
        chat: str,
        source: str | Path | bytes,
        *,
        name: str | None = None,
        type: str | None = None,  # noqa: A002  # the field name of attachments
    ) -> Attachment:
        """Upload a file by path or as bytes; return an attachment for `send`. See `FilesApi`."""
        return await self._files_api().upload(chat, source, name, type)

    async def download(
        self, attachment: Attachment | str, *, seq: int | None = None, is_thumb: bool = False
    ) -> bytes:
        """Return the content of a file of message `seq`, or of its thumbnail. See `FilesApi`."""
        file = attachment if isinstance(attachment, str) else attachment.id
        return await self._files_api().download(file, seq, is_thumb=is_thumb)

    async def describe(self, attachment: Attachment | str, *, seq: int | None = None) -> Attachment:
        """Return the current metadata of a file of message `seq`, with a thumbnail added later."""
        file = attachment if isinstance(attachment, str) else attachment.id
        return await self._files_api().describe(file, seq)

    def _files_api(self) -> FilesApi:
        return FilesApi(self._http_api())

    def _http_api(self) -> HttpApi:
        if self._api is None:
            raise BadRequest("api_url: required; set it to the address of the HTTP API")
        return self._api
