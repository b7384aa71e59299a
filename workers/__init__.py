"""The processes behind the gateways: one module a worker, started by ``chatserver worker``."""
