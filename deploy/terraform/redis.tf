# The hot tier, in cluster mode with TLS. Its user has only the rights that docs/security.md lists.
locals {
  redis_name    = "${replace(trimsuffix(var.table_prefix, "_"), "/[^A-Za-z0-9-]/", "-")}-redis"
  redis_version = { memorydb = "7.3", elasticache = "8.0", none = "" }[var.redis]
  redis_family  = { memorydb = "memorydb_valkey7", elasticache = "valkey8", none = "" }[var.redis]
  redis_node    = coalesce(var.redis_node_type, "${var.redis == "memorydb" ? "db" : "cache"}.r7g.large")
  redis_rights = join(" ", [
    "on resetchannels -@all",
    "~{p* ~{gw:* ~{rpc}:* ~{hook}:* ~{search}:* ~{media}:* ~{jwks}:* ~{cost}:* ~{social}:* ~{figures}:* ~{audit}:*",
    "+@read +@write +@connection +@transaction +@blocking -@dangerous",
    "+eval +evalsha +script|load +script|exists +time +wait +info +role +cluster|nodes",
  ])
  has_memorydb    = var.redis == "memorydb" ? 1 : 0
  has_elasticache = var.redis == "elasticache" ? 1 : 0
  has_redis       = var.redis == "none" ? 0 : 1
}

resource "aws_security_group" "redis" {
  count       = local.has_redis
  name        = local.redis_name
  description = "Redis of chatserver: inbound from its processes, no outbound"
  vpc_id      = var.vpc_id
}

resource "aws_vpc_security_group_ingress_rule" "redis" {
  for_each                     = toset(var.redis == "none" ? [] : var.client_security_group_ids)
  security_group_id            = aws_security_group.redis[0].id
  referenced_security_group_id = each.value
  ip_protocol                  = "tcp"
  from_port                    = 6379
  to_port                      = 6379
}

resource "aws_memorydb_subnet_group" "this" {
  count      = local.has_memorydb
  name       = local.redis_name
  subnet_ids = var.subnet_ids
}

resource "aws_memorydb_parameter_group" "this" {
  count  = local.has_memorydb
  name   = local.redis_name
  family = local.redis_family
  parameter {
    name  = "maxmemory-policy"
    value = "noeviction"
  }
}

resource "aws_memorydb_user" "chat" {
  count         = local.has_memorydb
  user_name     = "chat"
  access_string = local.redis_rights
  authentication_mode {
    type      = "password"
    passwords = [var.redis_password]
  }
}

resource "aws_memorydb_acl" "this" {
  count      = local.has_memorydb
  name       = local.redis_name
  user_names = [aws_memorydb_user.chat[0].user_name]
}

resource "aws_memorydb_cluster" "this" {
  count                    = local.has_memorydb
  name                     = local.redis_name
  engine                   = "valkey"
  engine_version           = local.redis_version
  node_type                = local.redis_node
  num_shards               = var.redis_shards
  num_replicas_per_shard   = var.redis_replicas
  acl_name                 = aws_memorydb_acl.this[0].name
  parameter_group_name     = aws_memorydb_parameter_group.this[0].name
  subnet_group_name        = aws_memorydb_subnet_group.this[0].name
  security_group_ids       = [aws_security_group.redis[0].id]
  tls_enabled              = true
  kms_key_arn              = var.kms_key_arn
  snapshot_retention_limit = 7
}

resource "aws_elasticache_subnet_group" "this" {
  count      = local.has_elasticache
  name       = local.redis_name
  subnet_ids = var.subnet_ids
}

resource "aws_elasticache_parameter_group" "this" {
  count  = local.has_elasticache
  name   = local.redis_name
  family = local.redis_family
  parameter {
    name  = "maxmemory-policy"
    value = "noeviction"
  }
  parameter {
    name  = "cluster-enabled"
    value = "yes"
  }
}

resource "aws_elasticache_user" "chat" {
  count         = local.has_elasticache
  user_id       = local.redis_name
  user_name     = "chat"
  engine        = "valkey"
  access_string = local.redis_rights
  authentication_mode {
    type      = "password"
    passwords = [var.redis_password]
  }
}

resource "aws_elasticache_user_group" "this" {
  count         = local.has_elasticache
  engine        = "valkey"
  user_group_id = local.redis_name
  user_ids      = [aws_elasticache_user.chat[0].user_id]
}

resource "aws_elasticache_replication_group" "this" {
  count                      = local.has_elasticache
  replication_group_id       = local.redis_name
  description                = "Hot tier of chatserver"
  engine                     = "valkey"
  engine_version             = local.redis_version
  node_type                  = local.redis_node
  port                       = 6379
  num_node_groups            = var.redis_shards
  replicas_per_node_group    = var.redis_replicas
  automatic_failover_enabled = true
  multi_az_enabled           = true
  parameter_group_name       = aws_elasticache_parameter_group.this[0].name
  subnet_group_name          = aws_elasticache_subnet_group.this[0].name
  security_group_ids         = [aws_security_group.redis[0].id]
  user_group_ids             = [aws_elasticache_user_group.this[0].user_group_id]
  transit_encryption_enabled = true
  at_rest_encryption_enabled = true
  kms_key_id                 = var.kms_key_arn
  snapshot_retention_limit   = 7
}
