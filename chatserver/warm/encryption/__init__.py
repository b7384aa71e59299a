"""Client-side encryption in DynamoDB: wrapped data keys and encrypted attributes.

`encrypted_fields.py` encrypts and decrypts attributes in every request and response of
`chatserver.warm.dynamo.client`; `data_keys.py` stores and deletes data keys.
"""
