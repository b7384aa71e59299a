"""Background jobs of companions: responses and calls of gateways."""
