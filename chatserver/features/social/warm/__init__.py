"""DynamoDB items of the social graph: profiles, edges, posts, likes and timelines.

Start with `rows.py`, which documents table `social`.
"""
