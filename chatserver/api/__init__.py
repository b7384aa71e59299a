"""The HTTP side: the web client's files and the REST API. One module per noun."""
