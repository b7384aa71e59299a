"""Everything on one machine: the servers that stand in for AWS, and `chatserver dev`."""
