"""HTTP routes for link previews."""

from __future__ import annotations

import urllib.parse
from typing import Annotated

import msgspec
from litestar import Response, get
from litestar.handlers import HTTPRouteHandler
from litestar.params import QueryParameter

from chatserver.api.authorization import USER, Actor
from chatserver.container.storage import StorageContainer
from chatserver.features.link_previews.container import LinkPreviewContainer
from chatserver.features.link_previews.model import CACHE_S, URL_CHARS_MAX

PICTURE_PATH = "/v1/link-preview/picture"
LinkUrl = Annotated[
    str,
    QueryParameter(
        name="url", min_length=1, max_length=URL_CHARS_MAX, description="http(s) URL of the page"
    ),
]
# The picture is untrusted. With these headers, it cannot run scripts, even if a browser opens it
# directly.
PICTURE_HEADERS = {
    "Cache-Control": f"private, max-age={CACHE_S}",
    "Content-Security-Policy": "default-src 'none'; sandbox",
    "Content-Disposition": "inline; filename=picture",
}


class LinkPreview(msgspec.Struct, frozen=True):
    """The preview that a page declares in its HTML tags.

    `picture` is a path on this server, which fetches the picture; null if there is none.
    """

    url: str
    title: str
    description: str
    site: str
    picture: str | None


def build_link_preview_routes(container: StorageContainer) -> list[HTTPRouteHandler]:
    @get("/v1/link-preview", opt={"rule": USER, "errors": (404,)})
    async def get_link_preview(actor: Actor, page_url: LinkUrl) -> LinkPreview:
        """Get a public web page's title, description and picture; 404 if it has no preview."""
        preview = await container.get(LinkPreviewContainer).previews.get(actor, page_url)
        query = urllib.parse.urlencode({"url": page_url})
        return LinkPreview(
            url=page_url,
            title=preview.title,
            description=preview.description,
            site=preview.site,
            picture=f"{PICTURE_PATH}?{query}" if preview.picture else None,
        )

    @get(PICTURE_PATH, opt={"rule": USER, "errors": (404,)})
    async def get_link_picture(actor: Actor, page_url: LinkUrl) -> Response[bytes]:
        """Get the picture in a page's preview: PNG, JPEG, GIF or WebP, up to 2 MB."""
        picture = await container.get(LinkPreviewContainer).previews.get_picture(actor, page_url)
        return Response(picture.content, media_type=picture.type, headers=PICTURE_HEADERS)

    return [get_link_preview, get_link_picture]
