"""Reading messages: history pages, device sync, queries by time or sender, and message context.

Start with `history_pages.py` for pages, and `warm_and_cold_log.py` for the order of the storage
tiers.
"""
