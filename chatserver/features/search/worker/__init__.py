"""Search workers. Start with `indexer`."""
