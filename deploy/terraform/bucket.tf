# One bucket: attachments/, archive/, bodies of long messages, and temporary objects (uploads/,
# exports/). Only the roles have access, and clients with a pre-signed URL.
locals {
  bucket  = coalesce(var.bucket, "chatserver-${var.account_id}-${var.region}")
  below   = var.tenant == "" ? "" : "${var.tenant}/"
  rule_id = var.tenant == "" ? "" : "-${var.tenant}"
}

resource "aws_s3_bucket" "this" {
  bucket = local.bucket

  lifecycle {
    prevent_destroy = true
  }
}

resource "aws_s3_bucket_public_access_block" "this" {
  bucket                  = aws_s3_bucket.this.id
  block_public_acls       = true
  block_public_policy     = true
  ignore_public_acls      = true
  restrict_public_buckets = true
}

resource "aws_s3_bucket_ownership_controls" "this" {
  bucket = aws_s3_bucket.this.id
  rule {
    object_ownership = "BucketOwnerEnforced"
  }
}

resource "aws_s3_bucket_versioning" "this" {
  bucket = aws_s3_bucket.this.id
  versioning_configuration {
    status = "Enabled"
  }
}

resource "aws_s3_bucket_server_side_encryption_configuration" "this" {
  bucket = aws_s3_bucket.this.id
  rule {
    bucket_key_enabled = var.kms_key_arn != null
    apply_server_side_encryption_by_default {
      sse_algorithm     = var.kms_key_arn == null ? "AES256" : "aws:kms"
      kms_master_key_id = var.kms_key_arn
    }
  }
}

resource "aws_s3_bucket_policy" "this" {
  bucket = aws_s3_bucket.this.id
  policy = jsonencode({
    Version = "2012-10-17"
    Statement = [{
      Sid       = "OnlyByTls"
      Effect    = "Deny"
      Principal = "*"
      Action    = "s3:*"
      Resource  = ["arn:${var.partition}:s3:::${local.bucket}", "arn:${var.partition}:s3:::${local.bucket}/*"]
      Condition = { Bool = { "aws:SecureTransport" = "false" } }
    }]
  })
}

resource "aws_s3_bucket_cors_configuration" "this" {
  count  = length(var.origins) > 0 ? 1 : 0
  bucket = aws_s3_bucket.this.id
  cors_rule {
    id              = "chatserver-pages${local.rule_id}"
    allowed_origins = var.origins
    allowed_methods = ["GET", "POST"]
    allowed_headers = ["*"]
    max_age_seconds = 600
  }
}

resource "aws_s3_bucket_lifecycle_configuration" "this" {
  bucket     = aws_s3_bucket.this.id
  depends_on = [aws_s3_bucket_versioning.this]

  # The first three rules are equal to those of `chatserver tables apply`, with the same names, so that
  # neither tool changes the rules of the other.
  rule {
    id     = "chatserver-uploads${local.rule_id}"
    status = "Enabled"
    filter {
      prefix = "${local.below}uploads/"
    }
    expiration {
      days = 2
    }
  }
  rule {
    id     = "chatserver-exports${local.rule_id}"
    status = "Enabled"
    filter {
      prefix = "${local.below}exports/"
    }
    expiration {
      days = 31
    }
  }
  rule {
    id     = "chatserver-parts"
    status = "Enabled"
    filter {
      prefix = ""
    }
    abort_incomplete_multipart_upload {
      days_after_initiation = 1
    }
  }
  # Noncurrent versions are overwritten or deleted objects.
  rule {
    id     = "old-versions"
    status = "Enabled"
    filter {
      prefix = ""
    }
    noncurrent_version_expiration {
      noncurrent_days = var.old_versions_days
    }
    expiration {
      expired_object_delete_marker = true
    }
  }
  # S3 does not move objects below 128 KB, because that would cost more than it saves.
  dynamic "rule" {
    for_each = var.archive_storage_class == "STANDARD" ? [] : [var.archive_storage_class]
    content {
      id     = "archive"
      status = "Enabled"
      filter {
        prefix = "${local.below}archive/"
      }
      transition {
        days          = var.archive_storage_days
        storage_class = rule.value
      }
    }
  }
}
