"""Gateway processes: entry point, server lifecycle, draining and the multi-process supervisor.

Start with `server` for one process and `supervisor` for several processes on one port.
"""
