"""HTTP routes of the core, one module per resource.

Each module has a function that returns its routes; `chatserver.api.app` collects them. Routes of
optional features are in `chatserver.features`.
"""
