# A bucket of its own, and a role that may use one prefix in it.
# Two ways to assume the role: pods of an EKS cluster (IAM roles for service accounts), or EC2 instances.

terraform {
  required_version = ">= 1.5"
  required_providers {
    aws = {
      source  = "hashicorp/aws"
      version = ">= 5.0"
    }
  }
}

variable "bucket" {
  description = "The bucket's name, unique in the world"
  type        = string
}

variable "prefix" {
  description = "The prefix in the store's URL, s3://BUCKET/PREFIX"
  type        = string
  default     = "tenure"
}

variable "oidc_provider_arn" {
  description = "The identity provider of the EKS cluster; empty: the role is for EC2 instances"
  type        = string
  default     = ""
}

variable "service_accounts" {
  description = "The Kubernetes service accounts that may assume the role, as NAMESPACE:NAME"
  type        = list(string)
  default     = ["default:tenure", "default:tenure-agents"]
}

locals {
  # The plain files have the names my-bucket and tenure, so that they can be read and applied without Terraform.
  policies = {
    for name in ["bucket-policy", "identity-policy"] : name => replace(
      replace(file("${path.module}/${name}.json"), ":::my-bucket/tenure/", ":::my-bucket/${var.prefix}/"),
      ":::my-bucket", ":::${var.bucket}"
    )
  }

  oidc_issuer = replace(var.oidc_provider_arn, "/^.*:oidc-provider\\//", "")
}

resource "aws_s3_bucket" "tenure" {
  bucket = var.bucket
}

resource "aws_s3_bucket_public_access_block" "tenure" {
  bucket                  = aws_s3_bucket.tenure.id
  block_public_acls       = true
  block_public_policy     = true
  ignore_public_acls      = true
  restrict_public_buckets = true
}

resource "aws_s3_bucket_policy" "tenure" {
  bucket = aws_s3_bucket.tenure.id
  policy = local.policies["bucket-policy"]
}

data "aws_iam_policy_document" "trust" {
  statement {
    actions = [var.oidc_provider_arn == "" ? "sts:AssumeRole" : "sts:AssumeRoleWithWebIdentity"]

    dynamic "principals" {
      for_each = var.oidc_provider_arn == "" ? ["ec2.amazonaws.com"] : []
      content {
        type        = "Service"
        identifiers = [principals.value]
      }
    }

    dynamic "principals" {
      for_each = var.oidc_provider_arn == "" ? [] : [var.oidc_provider_arn]
      content {
        type        = "Federated"
        identifiers = [principals.value]
      }
    }

    dynamic "condition" {
      for_each = var.oidc_provider_arn == "" ? {} : {
        aud = ["sts.amazonaws.com"]
        sub = [for account in var.service_accounts : "system:serviceaccount:${account}"]
      }
      content {
        test     = "StringEquals"
        variable = "${local.oidc_issuer}:${condition.key}"
        values   = condition.value
      }
    }
  }
}

resource "aws_iam_role" "tenure" {
  name_prefix        = "tenure-"
  assume_role_policy = data.aws_iam_policy_document.trust.json
}

resource "aws_iam_role_policy" "tenure" {
  name   = "tenure"
  role   = aws_iam_role.tenure.id
  policy = local.policies["identity-policy"]
}

resource "aws_iam_instance_profile" "tenure" {
  count       = var.oidc_provider_arn == "" ? 1 : 0
  name_prefix = "tenure-"
  role        = aws_iam_role.tenure.name
}

output "store" {
  value = "s3://${aws_s3_bucket.tenure.id}/${var.prefix}"
}

output "role_arn" {
  description = "For the annotation eks.amazonaws.com/role-arn"
  value       = aws_iam_role.tenure.arn
}

output "instance_profile" {
  value = one(aws_iam_instance_profile.tenure[*].name)
}
