"""Language model providers, which implement the `Provider` protocol in `interface`."""
