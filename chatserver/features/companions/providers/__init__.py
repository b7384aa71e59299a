"""Providers of language models, each behind the `Provider` protocol of `interface`."""
