"""Account and login use cases."""
