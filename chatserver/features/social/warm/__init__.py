"""DynamoDB items of the social graph: profiles, follows, posts, likes and timelines.

Start with `social_items.py`, which documents the `social` table.
"""
