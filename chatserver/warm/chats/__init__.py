"""Users, chats and memberships, in table `directory`.

To read the code, start with `records` (item formats) and `directory` (users, chats, read markers).
`memberships` writes membership changes. Other modules store invitations, logins, moderation data
and legal holds.
"""
