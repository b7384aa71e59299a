"""Sessions: one authenticated device connection, its commands and its authorization.

Start with `state_machine`, which has all stages, events and transitions, without I/O. `session`
delivers to the device; `command_handler` handles the frames from it.
"""
