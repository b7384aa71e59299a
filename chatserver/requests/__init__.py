"""Declarations of the core's requests, and of the frames that the server sends without a request.

A module has the frames of one subject: an `Operation` or a `ServerPush` each (see `operation`).
"""
