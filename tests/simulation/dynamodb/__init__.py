"""Simulated DynamoDB: tables in memory, and the product's transport to them."""
