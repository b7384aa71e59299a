# The tables of chatserver/warm/schema/tables.py, from which tables.json is generated (make docs). A
# field is empty if a table or index does not have it.
locals {
  document  = jsondecode(file("${path.module}/tables.json"))
  tables    = { for table in local.document.tables : table.name => table }
  is_paid   = var.billing == "provisioned"
  is_stream = var.archive_removal == "ttl"
}

resource "aws_dynamodb_table" "this" {
  for_each = local.tables

  name                        = "${var.table_prefix}${each.key}"
  billing_mode                = local.is_paid ? "PROVISIONED" : "PAY_PER_REQUEST"
  read_capacity               = local.is_paid ? var.capacity.read_min : null
  write_capacity              = local.is_paid ? var.capacity.write_min : null
  hash_key                    = each.value.hash_key
  range_key                   = each.value.range_key
  deletion_protection_enabled = var.deletion_protection
  stream_enabled              = local.is_stream && each.value.stream_view != ""
  stream_view_type            = local.is_stream && each.value.stream_view != "" ? each.value.stream_view : null

  point_in_time_recovery {
    enabled                 = true
    recovery_period_in_days = var.recovery_days
  }

  server_side_encryption {
    enabled     = var.kms_key_arn != null
    kms_key_arn = var.kms_key_arn
  }

  lifecycle {
    # Only `chatserver migrate` changes existing tables (docs/evolution.md), and only autoscaling their
    # capacity.
    ignore_changes = [attribute, global_secondary_index, ttl, read_capacity, write_capacity]
  }

  # This block is last, because the parser of our tests ignores a dynamic block before another block.
  dynamic "attribute" {
    for_each = each.value.attributes
    content {
      name = attribute.value.name
      type = attribute.value.type
    }
  }

  dynamic "global_secondary_index" {
    for_each = each.value.indexes
    content {
      name               = global_secondary_index.value.name
      hash_key           = global_secondary_index.value.hash_key
      range_key          = global_secondary_index.value.range_key == "" ? null : global_secondary_index.value.range_key
      projection_type    = global_secondary_index.value.projection_type
      non_key_attributes = length(global_secondary_index.value.non_key_attributes) > 0 ? global_secondary_index.value.non_key_attributes : null
      read_capacity      = local.is_paid ? var.capacity.read_min : null
      write_capacity     = local.is_paid ? var.capacity.write_min : null
    }
  }

  dynamic "ttl" {
    for_each = compact([each.value.ttl])
    content {
      attribute_name = ttl.value
      enabled        = true
    }
  }
}

# The record that `chatserver tables apply` writes: no migrations are pending. `chatserver migrate up`
# writes the record of a tenant.
resource "aws_dynamodb_table_item" "schema" {
  count = var.tenant == "" ? 1 : 0

  table_name = aws_dynamodb_table.this["directory"].name
  hash_key   = aws_dynamodb_table.this["directory"].hash_key
  range_key  = aws_dynamodb_table.this["directory"].range_key
  item       = jsonencode(local.document.schema)

  lifecycle {
    ignore_changes = [item]
  }
}

locals {
  scaled = local.is_paid ? merge([
    for name, table in local.tables : merge([
      for kind in ["read", "write"] : merge(
        { "${name}-${kind}" = { resource = "table/${var.table_prefix}${name}", of = "table", kind = kind } },
        {
          for index in table.indexes : "${name}-${index.name}-${kind}" => {
            resource = "table/${var.table_prefix}${name}/index/${index.name}", of = "index", kind = kind
          }
        }
      )
    ]...)
  ]...) : {}
}

resource "aws_appautoscaling_target" "capacity" {
  for_each = local.scaled

  service_namespace  = "dynamodb"
  resource_id        = each.value.resource
  scalable_dimension = "dynamodb:${each.value.of}:${title(each.value.kind)}CapacityUnits"
  min_capacity       = each.value.kind == "read" ? var.capacity.read_min : var.capacity.write_min
  max_capacity       = each.value.kind == "read" ? var.capacity.read_max : var.capacity.write_max
  depends_on         = [aws_dynamodb_table.this]
}

resource "aws_appautoscaling_policy" "capacity" {
  for_each = local.scaled

  name               = "${var.table_prefix}${each.key}"
  policy_type        = "TargetTrackingScaling"
  service_namespace  = aws_appautoscaling_target.capacity[each.key].service_namespace
  resource_id        = aws_appautoscaling_target.capacity[each.key].resource_id
  scalable_dimension = aws_appautoscaling_target.capacity[each.key].scalable_dimension

  target_tracking_scaling_policy_configuration {
    target_value       = var.capacity.target_percent
    scale_in_cooldown  = 300
    scale_out_cooldown = 0
    predefined_metric_specification {
      predefined_metric_type = "DynamoDB${title(each.value.kind)}CapacityUtilization"
    }
  }
}
