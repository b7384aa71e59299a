"""Users, chats and memberships, in table `directory`.

Start with `records` (item formats) and `directory` (users, chats, read markers). `memberships`
writes membership changes. Separate modules store invitations, pins, moderation data and legal
holds.
"""
