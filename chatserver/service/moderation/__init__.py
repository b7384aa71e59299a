"""Moderation and retention: blocks, reports, message retention and legal holds.

`blocks_and_reports.py` has blocks and reports. Mutes and bans are group changes
(`service/membership`).
"""
