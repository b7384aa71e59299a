"""Values and rules of the core: ids, messages, memberships, presence. No I/O.

Start with `ids` and `messages`.
"""
