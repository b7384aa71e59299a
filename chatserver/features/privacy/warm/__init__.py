"""DynamoDB data of exports and erasures.

`jobs` holds the jobs; `user_data` reads and deletes the items of one user.
"""
