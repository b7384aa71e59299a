"""Message cache of the client SDK: chats and messages in a SQLite file, readable offline.

`ChangeRecorder` converts what the client receives into `changes`, without I/O. `LocalStore` writes
them with the cursor in one transaction, in one thread. `MessageCache` applies them and reads pages;
`sqlite_file` opens the file.

If the client may have missed changes to cached entries, these become *unverified*: they are not
read until `revalidation` has replaced them with a page from the server. The other entries are
*verified*.
"""
