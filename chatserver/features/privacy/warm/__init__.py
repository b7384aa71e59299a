"""DynamoDB data for exports and erasures: the jobs, and the users' items."""
