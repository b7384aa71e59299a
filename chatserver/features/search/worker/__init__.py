"""Background work of search. Start with `indexer`."""
