# A bucket of its own, and a service account that may use it. Kubernetes service accounts on GKE may act as it.

terraform {
  required_version = ">= 1.5"
  required_providers {
    google = {
      source  = "hashicorp/google"
      version = ">= 5.21"
    }
  }
}

variable "project" {
  type = string
}

variable "bucket" {
  description = "The bucket's name, unique in the world"
  type        = string
}

variable "location" {
  type    = string
  default = "EU"
}

variable "service_accounts" {
  description = "The Kubernetes service accounts that may act as the service account, as NAMESPACE/NAME; none: without GKE"
  type        = list(string)
  default     = []
}

resource "google_storage_bucket" "tenure" {
  project                     = var.project
  name                        = var.bucket
  location                    = var.location
  uniform_bucket_level_access = true
  public_access_prevention    = "enforced"

  # A leader rewrites the seat every 1.5 s: without this, every old version would be kept, and billed, for a week.
  soft_delete_policy {
    retention_duration_seconds = 0
  }
}

resource "google_service_account" "tenure" {
  project    = var.project
  account_id = "tenure"
}

resource "google_storage_bucket_iam_member" "tenure" {
  bucket = google_storage_bucket.tenure.name
  role   = "roles/storage.objectUser"
  member = "serviceAccount:${google_service_account.tenure.email}"
}

resource "google_service_account_iam_member" "pods" {
  for_each           = toset(var.service_accounts)
  service_account_id = google_service_account.tenure.name
  role               = "roles/iam.workloadIdentityUser"
  member             = "serviceAccount:${var.project}.svc.id.goog[${each.value}]"
}

output "store" {
  value = "gs://${google_storage_bucket.tenure.name}/tenure"
}

output "service_account" {
  description = "For the annotation iam.gke.io/gcp-service-account"
  value       = google_service_account.tenure.email
}
