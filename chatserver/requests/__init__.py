"""Requests that run in `worker rpc`, one declaration each: frame, handler, costs.

The gateway passes the frame on as it came, and forwards the encoded reply. A new request of this
kind is an `Operation` in one of these modules, or in the `requests` module of a feature.
"""
