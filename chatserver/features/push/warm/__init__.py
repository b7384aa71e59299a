"""DynamoDB items of push subscriptions."""
