"""Sessions: one authenticated device connection, its commands and its authorization.

Start with `session` for delivery to the device, and `command_handler` for frames from it.
"""
