"""DynamoDB items of pushes: subscriptions and muted chats."""
