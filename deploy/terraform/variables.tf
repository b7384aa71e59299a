variable "account_id" {
  type        = string
  description = "The account; in another one nothing is done."
  validation {
    condition     = can(regex("^[0-9]{12}$", var.account_id))
    error_message = "Twelve digits."
  }
}

variable "region" {
  type = string
}

variable "partition" {
  type        = string
  default     = "aws"
  description = "aws, aws-cn or aws-us-gov."
}

variable "tags" {
  type    = map(string)
  default = {}
}

variable "table_prefix" {
  type        = string
  default     = "chat_"
  description = "CHAT_WARM_TABLE_PREFIX; names of roles, policies and Redis begin with it, too."
}

variable "tenant" {
  type        = string
  default     = ""
  description = "CHAT_WARM_TENANT: set, the roles are held to its partitions and objects (docs/tenants.md)."
}

variable "deletion_protection" {
  type        = bool
  default     = true
  description = "Tables cannot be deleted. The bucket never can while something is in it."
}

variable "kms_key_arn" {
  type        = string
  default     = null
  description = "A key of yours for tables and bucket; null: those of AWS."
}

variable "encryption_key_arn" {
  type        = string
  default     = null
  description = "KMS key of client-side encryption (CHAT_ENCRYPTION_KMS_KEY_ID); null: none."
}

# DynamoDB

variable "billing" {
  type        = string
  default     = "on_demand"
  description = "on_demand, or provisioned with autoscaling: cheaper where the load is even."
  validation {
    condition     = contains(["on_demand", "provisioned"], var.billing)
    error_message = "on_demand or provisioned."
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
  description = "Units of each table and each index, when provisioned."
}

variable "recovery_days" {
  type        = number
  default     = 35
  description = "How far back a table can be restored; erased data is in these backups for so long."
}

# S3

variable "bucket" {
  type        = string
  default     = null
  description = "Its name; null: chatserver-<account>-<region>."
}

variable "origins" {
  type        = list(string)
  default     = []
  description = "CHAT_COLD_ORIGINS: pages that may upload, https://chat.example.com."
}

variable "archive_removal" {
  type        = string
  default     = "worker"
  description = "CHAT_ARCHIVE_REMOVAL: worker, or ttl, which needs the Stream of the table messages."
  validation {
    condition     = contains(["worker", "ttl"], var.archive_removal)
    error_message = "worker or ttl."
  }
}

# Segments are read while somebody scrolls, so they may only go where an object answers within
# milliseconds. GLACIER (Flexible Retrieval) and DEEP_ARCHIVE refuse GetObject until it is restored,
# hours later: to the server such a range of a history is broken.
variable "archive_storage_class" {
  type        = string
  default     = "GLACIER_IR"
  description = "Of archived messages after archive_storage_days: GLACIER_IR is cheapest for what is seldom read; INTELLIGENT_TIERING where nobody knows."
  validation {
    condition     = contains(["STANDARD", "STANDARD_IA", "GLACIER_IR", "INTELLIGENT_TIERING"], var.archive_storage_class)
    error_message = "STANDARD, STANDARD_IA, GLACIER_IR or INTELLIGENT_TIERING: the others cannot be read at once."
  }
}

variable "archive_storage_days" {
  type        = number
  default     = 90
  description = "Young segments are still filled up, and GLACIER_IR asks for 90 days of whatever it gets."
  validation {
    condition     = var.archive_storage_days >= 30
    error_message = "At least 30 days."
  }
}

variable "old_versions_days" {
  type        = number
  default     = 30
  description = "What was overwritten or deleted in the bucket can be brought back for so long; and what users erased is there for so long."
}

# Redis

variable "redis" {
  type        = string
  default     = "memorydb"
  description = "memorydb loses nothing that was acked; elasticache is cheaper and may, in a failover; none: it is elsewhere."
  validation {
    condition     = contains(["memorydb", "elasticache", "none"], var.redis)
    error_message = "memorydb, elasticache or none."
  }
}

variable "redis_node_type" {
  type        = string
  default     = null
  description = "Null: db.r7g.large of MemoryDB, cache.r7g.large of ElastiCache."
}

variable "redis_shards" {
  type    = number
  default = 1
}

variable "redis_replicas" {
  type        = number
  default     = 1
  description = "Of each shard, in other zones."
}

variable "redis_partitions" {
  type        = number
  default     = 64
  description = "CHAT_REDIS_PARTITIONS: for ever; so many workers can persist at once."
}

variable "redis_password" {
  type        = string
  default     = null
  sensitive   = true
  description = "Of the user chat, at least 16 characters without any that a URL would encode; it is in the state."
  validation {
    condition     = var.redis_password == null || can(regex("^[A-Za-z0-9_-]{16,128}$", var.redis_password))
    error_message = "16 to 128 letters, digits, _ and -; try: openssl rand -hex 32."
  }
}

variable "vpc_id" {
  type        = string
  default     = null
  description = "Where Redis is."
}

variable "subnet_ids" {
  type        = list(string)
  default     = []
  description = "Private ones, in two zones at least."
}

variable "client_security_group_ids" {
  type        = list(string)
  default     = []
  description = "Of the nodes or pods that may connect to Redis."
}

# IAM

variable "oidc_provider_arn" {
  type        = string
  default     = null
  description = "Of the EKS cluster: service accounts take the roles. Null: trusted_services do."
}

variable "namespace" {
  type        = string
  default     = "chat"
  description = "Of Kubernetes, where the chart is."
}

variable "release" {
  type        = string
  default     = "chat"
  description = "What the chart's release is called."
}

variable "trusted_services" {
  type    = list(string)
  default = ["ecs-tasks.amazonaws.com"]
}

variable "bedrock_models" {
  type        = list(string)
  default     = []
  description = "ARNs of models and inference profiles that workers may ask."
}
