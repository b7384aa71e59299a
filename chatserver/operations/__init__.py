"""Operator tooling, one package per tool.

`doctor` checks settings and stores, `audit` compares the tiers, `trace` locates one message, `cost`
reports DynamoDB usage, `capacity` sizes a deployment, and `overview` serves the admin page. Start
with the `cli` module of a tool; its `service` or `report` module has the logic.
"""
