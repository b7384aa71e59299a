"""The calls of the SDK that use the HTTP API. Start with `http_calls`."""
