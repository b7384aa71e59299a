"""Client-side encryption of message bodies: envelope keys and the format of encrypted values.

A KMS key or a key file wraps data keys; a data key encrypts the bodies of one tenant. Start with
`value_cipher.py` (interface and format); `key_ring.py` creates, caches and unwraps data keys;
`key_file.py` and `kms.py` wrap them. `chatserver.warm.encryption` stores the wrapped keys.
"""
