"""Simulated Redis server, with the product's Lua scripts."""
