"""DynamoDB data of exports and erasures.

`jobs` holds the jobs; `user_data` reads and deletes the rows of one user.
"""
