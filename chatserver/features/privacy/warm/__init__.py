"""DynamoDB data of exports and erasures: jobs, and the items of a user."""
