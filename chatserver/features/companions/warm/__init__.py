"""DynamoDB items of companions: versions, sessions, session summaries and memories of users."""
