"""Terminal client of the `chatserver chat` command.

To read the code, start with `terminal.py` (full screen and pipes); `conversation.py` is the view
model without I/O and `conversation_link.py` connects it to a `ChatClient`.
"""
