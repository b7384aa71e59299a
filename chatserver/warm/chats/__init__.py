"""Users, chats and memberships, in table `directory`.

To read the code, start with `directory_items` (item formats) and `directory` (users, chats, read
markers). `memberships` writes membership changes. Other modules store invitations, logins,
moderation data and legal holds.
"""
