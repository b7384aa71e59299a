"""Values and rules of the core: ids, messages, memberships, presence. No I/O, no other package.

Start with `ids` and `messages`.
"""
