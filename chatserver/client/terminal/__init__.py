"""Terminal client of the `chatserver chat` command.

Start with `terminal.py` (screen and pipes); `conversation.py` is the view model without I/O and
`conversation_link.py` connects it to a `ChatClient`.
"""
