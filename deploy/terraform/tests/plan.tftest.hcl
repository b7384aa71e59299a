# For `terraform test`: plans with a mock provider, without calls to AWS.
mock_provider "aws" {}

variables {
  account_id     = "123456789012"
  region         = "eu-central-1"
  redis_password = "0123456789abcdef"
  vpc_id         = "vpc-1"
  subnet_ids     = ["subnet-1", "subnet-2"]
  origins        = ["https://chat.example.com"]
}

run "defaults" {
  command = plan

  assert {
    condition     = toset([for table in aws_dynamodb_table.this : table.name]) == toset(["chat_messages", "chat_chat_session", "chat_social", "chat_directory"])
    error_message = "There are four tables."
  }
  assert {
    condition     = alltrue([for table in aws_dynamodb_table.this : table.deletion_protection_enabled && table.point_in_time_recovery[0].enabled])
    error_message = "Each table is protected, and can be restored."
  }
  assert {
    condition     = aws_dynamodb_table.this["messages"].ttl[0].attribute_name == "ttl" && length(aws_dynamodb_table.this["chat_session"].ttl) == 0
    error_message = "TTL reads what the server writes."
  }
  assert {
    condition     = length(aws_appautoscaling_target.capacity) == 0 && length(aws_memorydb_cluster.this) == 1
    error_message = "On demand there is no capacity to scale."
  }
  assert {
    condition     = !strcontains(aws_iam_policy.this["processes"].policy, "PrincipalTag") && !strcontains(aws_iam_policy.this["processes"].policy, "Scan")
    error_message = "Without a tenant nothing is compared with one, and processes never scan."
  }
  assert {
    condition     = output.settings.CHAT_COLD_BUCKET == "chatserver-123456789012-eu-central-1"
    error_message = "The settings name the bucket."
  }
}

run "provisioned_tenant_elasticache" {
  command = plan

  variables {
    billing           = "provisioned"
    tenant            = "acme"
    redis             = "elasticache"
    archive_removal   = "ttl"
    oidc_provider_arn = "arn:aws:iam::123456789012:oidc-provider/oidc.eks.eu-central-1.amazonaws.com/id/ABC"
  }

  assert {
    condition     = length(aws_appautoscaling_policy.capacity) == 2 * (4 + 6)
    error_message = "Reads and writes of four tables and six indexes scale."
  }
  assert {
    condition     = aws_dynamodb_table.this["messages"].stream_enabled && !aws_dynamodb_table.this["social"].stream_enabled
    error_message = "The Stream is where the archive reads it, and nowhere else."
  }
  assert {
    condition     = strcontains(aws_iam_policy.this["processes"].policy, "$${aws:PrincipalTag/tenant}/*") && aws_iam_role.this["worker"].tags.tenant == "acme"
    error_message = "A role is held to its tenant."
  }
  assert {
    condition     = strcontains(aws_iam_role.this["worker"].assume_role_policy, "system:serviceaccount:chat:chat-chatserver-worker")
    error_message = "The chart's service account takes the role."
  }
}

run "deep_glacier_is_refused" {
  command = plan

  variables {
    archive_storage_class = "DEEP_ARCHIVE"
  }

  expect_failures = [var.archive_storage_class]
}
