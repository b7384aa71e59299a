"""HTTP that the server itself asks for: webhooks, push services, keys of token issuers."""
