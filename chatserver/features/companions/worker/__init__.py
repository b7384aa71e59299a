"""Background jobs of companions: responses, and RPC handlers for gateways."""
