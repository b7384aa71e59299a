"""Use cases, shared by gateway, API and workers. They know adapters by the shape they need."""
