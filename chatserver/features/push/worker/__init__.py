"""Push worker."""
