"""What the tests share: real servers, waiting for conditions, builders."""
