"""DynamoDB account items: password hashes, profiles, and user search entries."""
