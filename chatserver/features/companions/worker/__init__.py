"""The assistant worker, which creates companions' responses, and RPC handlers for gateways."""
