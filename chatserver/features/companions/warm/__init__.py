"""DynamoDB items of companions: companion versions, sessions and session summaries."""
