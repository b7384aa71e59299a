"""Message cache of the client SDK: chats and messages in a SQLite file, readable offline.

`Recorder` converts what the client receives into `changes`, without I/O. `LocalStore` writes them
with the cursor in one transaction, in one thread. `MessageTables` applies them and reads pages,
`StoreFile` opens the file. `revalidation` compares cached messages with the server.
"""
