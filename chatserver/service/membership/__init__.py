"""Group membership: invite, join, leave, remove, roles, settings, and delivery of these changes.

`group_membership.py` describes the steps of a change; `membership_propagation.py` applies it to
Redis and inboxes.
"""
