# The stores of chatserver in AWS: tables, bucket, Redis, and the roles that may use them.
#
#   terraform init && terraform apply -var account_id=123456789012 -var region=eu-central-1 …
#
# Where the state is kept is yours to say, in a backend.tf beside this file. docs/deploy.md goes
# through it. The networks, the cluster and DNS are not here: they are yours already.
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
