"""SDK calls that use the HTTP API. Start with `http_calls`."""
