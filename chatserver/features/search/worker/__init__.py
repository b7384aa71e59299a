"""Workers of search. Start with `indexer`."""
