"""Requests that run in `worker rpc`, one declaration each: frame, handler, costs.

The gateway forwards the frame unchanged, and then the encoded reply. A new request of this
kind is an `Operation` in one of these modules, or in the `requests` module of a feature.
"""
