# Roles with the policies of deploy/iam, which are generated from the calls in the code (make docs).
# Gateways have no role, because they call no AWS service.
locals {
  names_in_policies = {
    "arn:aws:dynamodb:*:*:table/chat_" = "arn:${var.partition}:dynamodb:${var.region}:${var.account_id}:table/${var.table_prefix}"
    "arn:aws:s3:::chatserver"          = "arn:${var.partition}:s3:::${local.bucket}"
  }
  policy_texts = {
    for name in ["processes", "archive", "operator"] : name => replace(
      replace(
        file("${path.module}/../iam/${name}.json"),
        "arn:aws:dynamodb:*:*:table/chat_", local.names_in_policies["arn:aws:dynamodb:*:*:table/chat_"]
      ),
      "arn:aws:s3:::chatserver", local.names_in_policies["arn:aws:s3:::chatserver"]
    )
  }
  # Without a tenant, the roles may access all items and objects, so the conditions are removed.
  policies = {
    for name, text in local.policy_texts : name => var.tenant != "" ? text : jsonencode({
      Version = "2012-10-17"
      Statement = [
        for statement in jsondecode(replace(text, "$${aws:PrincipalTag/tenant}/*", "*")).Statement :
        { for key, value in statement : key => value if key != "Condition" }
      ]
    })
  }
  roles = {
    api      = ["processes"]
    worker   = ["processes"]
    archive  = ["processes", "archive"]
    operator = ["processes", "operator"]
  }
  attachments = merge([
    for role, names in local.roles : { for name in names : "${role}-${name}" => { role = role, policy = name } }
  ]...)
  chart  = strcontains(var.release, "chatserver") ? var.release : "${var.release}-chatserver"
  issuer = var.oidc_provider_arn == null ? "" : element(split("oidc-provider/", var.oidc_provider_arn), 1)
}

resource "aws_iam_policy" "this" {
  for_each = local.policies
  name     = "${var.table_prefix}${each.key}"
  policy   = each.value
}

resource "aws_iam_role" "this" {
  for_each = local.roles
  name     = "${var.table_prefix}${each.key}"
  tags     = var.tenant == "" ? {} : { tenant = var.tenant }

  assume_role_policy = jsonencode({
    Version = "2012-10-17"
    Statement = var.oidc_provider_arn == null ? [{
      Effect    = "Allow"
      Action    = ["sts:AssumeRole"]
      Principal = { Service = var.trusted_services }
      Condition = { StringEquals = { "aws:SourceAccount" = var.account_id } }
      }] : [{
      Effect    = "Allow"
      Action    = ["sts:AssumeRoleWithWebIdentity"]
      Principal = { Federated = [var.oidc_provider_arn] }
      Condition = {
        StringEquals = {
          "${local.issuer}:aud" = "sts.amazonaws.com"
          "${local.issuer}:sub" = "system:serviceaccount:${var.namespace}:${local.chart}-${each.key}"
        }
      }
    }]
  })
}

resource "aws_iam_role_policy_attachment" "this" {
  for_each   = local.attachments
  role       = aws_iam_role.this[each.value.role].name
  policy_arn = aws_iam_policy.this[each.value.policy].arn
}

resource "aws_iam_role_policy" "models" {
  for_each = toset(length(var.bedrock_models) > 0 ? ["worker", "archive"] : [])
  name     = "models"
  role     = aws_iam_role.this[each.value].name
  policy = jsonencode({
    Version = "2012-10-17"
    Statement = [{
      Effect   = "Allow"
      Action   = ["bedrock:InvokeModel", "bedrock:InvokeModelWithResponseStream"]
      Resource = var.bedrock_models
    }]
  })
}

# Client-side encryption: data keys of this tenant only.
resource "aws_iam_role_policy" "encryption" {
  for_each = toset(var.encryption_key_arn == null ? [] : keys(local.roles))
  name     = "encryption"
  role     = aws_iam_role.this[each.value].name
  policy = jsonencode({
    Version = "2012-10-17"
    Statement = [{
      Effect    = "Allow"
      Action    = ["kms:Decrypt", "kms:Encrypt", "kms:GenerateDataKey"]
      Resource  = [var.encryption_key_arn]
      Condition = { StringEquals = { "kms:EncryptionContext:tenant" = var.tenant == "" ? "-" : var.tenant } }
    }]
  })
}

resource "aws_iam_role_policy" "key" {
  for_each = toset(var.kms_key_arn == null ? [] : keys(local.roles))
  name     = "key"
  role     = aws_iam_role.this[each.value].name
  policy = jsonencode({
    Version = "2012-10-17"
    Statement = [{
      Effect   = "Allow"
      Action   = ["kms:Decrypt", "kms:DescribeKey", "kms:Encrypt", "kms:GenerateDataKey*", "kms:ReEncrypt*"]
      Resource = [var.kms_key_arn]
    }]
  })
}
