"""Full-text search in messages, with the index in local files or in the S3 bucket.

Start with `service.py` (searching) and `worker/indexer.py` (indexing). `query.py` parses queries,
and `tokenizer.py` splits text into tokens. `model.py` defines the interface of the engines in
`engines/`. `hot.py` stores the indexer's position in Redis.
"""

from chatserver.features.registry import Feature, Worker

FEATURE = Feature(
    name="search",
    requests="chatserver.features.search.requests",
    routes=("chatserver.features.search.routes:build_search_routes",),
    workers={
        "search": Worker(
            "chatserver.features.search.worker.indexer:run_search",
            "keeps the search index up to date",
            nice=5,  # an index and its searches matter less than messages
            check="chatserver.features.search.engines.registry:check_engine",
            prepare="chatserver.features.search.container:preload_engine",
        ),
    },
    commands={
        "search": (
            "chatserver.features.search.cli:search",
            "Query, check and rebuild the search index.",
        ),
    },
    tenant_stores=("chatserver.features.search.tenant_index:open_tenant_index",),
    ports={"erase_indexed": "chatserver.features.search.container:make_eraser"},
)
