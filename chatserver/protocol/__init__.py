"""The wire format ``chat.v1``: frame types, encodings, error codes and the cost of requests.

Start with `frames`.
"""
