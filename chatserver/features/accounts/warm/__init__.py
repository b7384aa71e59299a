"""DynamoDB items of accounts: password hashes, profiles, and the entries of the user search."""
