# Settings of the processes.
locals {
  redis_host = try(
    aws_memorydb_cluster.this[0].cluster_endpoint[0].address,
    aws_elasticache_replication_group.this[0].configuration_endpoint_address,
    ""
  )
  settings = merge(
    {
      CHAT_WARM_REGION       = var.region
      CHAT_WARM_TABLE_PREFIX = var.table_prefix
      CHAT_WARM_STREAM       = tostring(local.is_stream)
      CHAT_WARM_BILLING      = var.billing
      CHAT_ARCHIVE_REMOVAL   = var.archive_removal
      CHAT_COLD_REGION       = var.region
      CHAT_COLD_BUCKET       = local.bucket
      CHAT_COLD_ORIGINS      = jsonencode(var.origins)
    },
    var.tenant == "" ? {} : { CHAT_WARM_TENANT = var.tenant },
    var.redis == "none" ? {} : { CHAT_REDIS_CLUSTER = "true", CHAT_REDIS_PARTITIONS = tostring(var.redis_partitions) },
  )
  role_arns = { for name, role in aws_iam_role.this : name => role.arn }
}

output "settings" {
  value       = local.settings
  description = "Environment variables of all processes."
}

output "redis_url" {
  value       = var.redis == "none" ? null : "rediss://chat:${var.redis_password}@${local.redis_host}:6379/0"
  sensitive   = true
  description = "CHAT_REDIS_URL, for the Secret that also has CHAT_AUTH_SECRET."
}

output "role_arns" {
  value       = local.role_arns
  description = "ARNs of the roles, by name."
}

output "helm_values" {
  value = yamlencode({
    settings        = local.settings
    tables          = { enabled = false }
    serviceAccounts = { for name, arn in local.role_arns : name => { annotations = { "eks.amazonaws.com/role-arn" = arn } } }
  })
  description = "Values of the Helm chart: helm upgrade --install … -f <(terraform output -raw helm_values)"
}
