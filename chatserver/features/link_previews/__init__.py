"""Link previews: title, description and picture of a web page that a message links to.

The server fetches the page, so clients do not reveal their IP addresses to the site. Start with
`service.py`. `page_head.py` parses pages, `hot.py` caches previews in Redis. All requests must pass
the address check in `chatserver.outbound`.
"""

from chatserver.features.registry import Feature

FEATURE = Feature(
    name="link_previews",
    routes=("chatserver.features.link_previews.routes:build_link_preview_routes",),
)
