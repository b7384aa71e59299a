# The stores of chatserver in AWS: tables, bucket, Redis, and the roles that access them.
#
#   terraform init && terraform apply -var account_id=123456789012 -var region=eu-central-1 …
#
# Configure where the state is stored in a backend.tf next to this file. Networks, the cluster and DNS
# are not included. docs/deploy.md describes all steps.
terraform {
  required_version = ">= 1.5"
  required_providers {
    aws = {
      source  = "hashicorp/aws"
      version = "~> 5.80"
    }
  }
}

provider "aws" {
  region              = var.region
  allowed_account_ids = [var.account_id]
  default_tags {
    tags = merge({ application = "chatserver" }, var.tags)
  }
}
