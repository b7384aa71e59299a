"""Redis data of companions: pending responses, response streams and token budgets."""
