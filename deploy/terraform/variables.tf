variable "account_id" {
  type        = string
  description = "AWS account id. Terraform refuses to change any other account."
  validation {
    condition     = can(regex("^[0-9]{12}$", var.account_id))
    error_message = "Must be twelve digits."
  }
}

variable "region" {
  type        = string
  description = "AWS region."
}

variable "partition" {
  type        = string
  default     = "aws"
  description = "AWS partition: aws, aws-cn or aws-us-gov."
}

variable "tags" {
  type        = map(string)
  default     = {}
  description = "Tags of all resources."
}

variable "table_prefix" {
  type        = string
  default     = "chat_"
  description = "CHAT_WARM_TABLE_PREFIX. Also the prefix of the names of roles, policies and Redis."
}

variable "tenant" {
  type        = string
  default     = ""
  description = "CHAT_WARM_TENANT. If set, the roles can access only the tenant's partitions and objects (docs/tenants.md)."
}

variable "deletion_protection" {
  type        = bool
  default     = true
  description = "Protect the tables from deletion. A bucket that is not empty can never be deleted."
}

variable "kms_key_arn" {
  type        = string
  default     = null
  description = "KMS key for the tables and the bucket; null: keys owned by AWS."
}

variable "encryption_key_arn" {
  type        = string
  default     = null
  description = "KMS key for client-side encryption (CHAT_ENCRYPTION_KMS_KEY_ID); null: none."
}

# DynamoDB

variable "billing" {
  type        = string
  default     = "on_demand"
  description = "on_demand, or provisioned with autoscaling, which costs less for a steady load."
  validation {
    condition     = contains(["on_demand", "provisioned"], var.billing)
    error_message = "Must be on_demand or provisioned."
  }
}

variable "capacity" {
  type = object({
    read_min       = optional(number, 25)
    read_max       = optional(number, 4000)
    write_min      = optional(number, 25)
    write_max      = optional(number, 4000)
    target_percent = optional(number, 60)
  })
  default     = {}
  description = "Capacity units of each table and index with provisioned billing."
}

variable "recovery_days" {
  type        = number
  default     = 35
  description = "Days for which a table can be restored to a point in time. The backups keep erased data for the same time."
}

# S3

variable "bucket" {
  type        = string
  default     = null
  description = "Name of the bucket; null: chatserver-<account>-<region>."
}

variable "origins" {
  type        = list(string)
  default     = []
  description = "CHAT_COLD_ORIGINS: web origins that may upload, such as https://chat.example.com."
}

variable "archive_removal" {
  type        = string
  default     = "worker"
  description = "CHAT_ARCHIVE_REMOVAL: worker, or ttl, which enables the Stream of the table messages."
  validation {
    condition     = contains(["worker", "ttl"], var.archive_removal)
    error_message = "Must be worker or ttl."
  }
}

# Segments are read while users scroll, so the storage class must return objects within milliseconds.
# GLACIER (Flexible Retrieval) and DEEP_ARCHIVE refuse GetObject until an object is restored, which
# takes hours: the server could not read that part of the history.
variable "archive_storage_class" {
  type        = string
  default     = "GLACIER_IR"
  description = "Storage class of archived messages after archive_storage_days: GLACIER_IR costs least if they are rarely read; INTELLIGENT_TIERING suits an unknown pattern."
  validation {
    condition     = contains(["STANDARD", "STANDARD_IA", "GLACIER_IR", "INTELLIGENT_TIERING"], var.archive_storage_class)
    error_message = "Must be STANDARD, STANDARD_IA, GLACIER_IR or INTELLIGENT_TIERING; other classes cannot be read immediately."
  }
}

variable "archive_storage_days" {
  type        = number
  default     = 90
  description = "Age at which segments change their storage class. Recent segments may still be rewritten, and GLACIER_IR bills at least 90 days."
  validation {
    condition     = var.archive_storage_days >= 30
    error_message = "Must be at least 30 days."
  }
}

variable "old_versions_days" {
  type        = number
  default     = 30
  description = "Days for which overwritten and deleted objects can be restored, including data that users erased."
}

# Redis

variable "redis" {
  type        = string
  default     = "memorydb"
  description = "memorydb keeps all acked messages; elasticache costs less and may lose some in a failover; none: Redis is not created."
  validation {
    condition     = contains(["memorydb", "elasticache", "none"], var.redis)
    error_message = "Must be memorydb, elasticache or none."
  }
}

variable "redis_node_type" {
  type        = string
  default     = null
  description = "Node type of Redis; null: db.r7g.large for MemoryDB, cache.r7g.large for ElastiCache."
}

variable "redis_shards" {
  type        = number
  default     = 1
  description = "Number of Redis shards."
}

variable "redis_replicas" {
  type        = number
  default     = 1
  description = "Replicas of each shard, in other availability zones. Use one more than CHAT_REDIS_WAIT_REPLICAS."
}

variable "redis_partitions" {
  type        = number
  default     = 64
  description = "CHAT_REDIS_PARTITIONS. Cannot be changed later; the maximum number of active persist workers."
}

variable "redis_password" {
  type        = string
  default     = null
  sensitive   = true
  description = "Password of the Redis user chat. Stored in the Terraform state."
  validation {
    condition     = var.redis_password == null || can(regex("^[A-Za-z0-9_-]{16,128}$", var.redis_password))
    error_message = "Must be 16 to 128 letters, digits, _ and -; try: openssl rand -hex 32."
  }
}

variable "vpc_id" {
  type        = string
  default     = null
  description = "VPC of Redis."
}

variable "subnet_ids" {
  type        = list(string)
  default     = []
  description = "Private subnets of Redis, in at least two availability zones."
}

variable "client_security_group_ids" {
  type        = list(string)
  default     = []
  description = "Security groups of the nodes or pods that may connect to Redis."
}

# IAM

variable "oidc_provider_arn" {
  type        = string
  default     = null
  description = "OIDC provider of the EKS cluster, whose service accounts may assume the roles; null: trusted_services may assume them."
}

variable "namespace" {
  type        = string
  default     = "chat"
  description = "Kubernetes namespace of the chart."
}

variable "release" {
  type        = string
  default     = "chat"
  description = "Release name of the chart."
}

variable "trusted_services" {
  type        = list(string)
  default     = ["ecs-tasks.amazonaws.com"]
  description = "AWS services that may assume the roles, without oidc_provider_arn."
}

variable "bedrock_models" {
  type        = list(string)
  default     = []
  description = "ARNs of the Bedrock models and inference profiles that workers may invoke."
}
