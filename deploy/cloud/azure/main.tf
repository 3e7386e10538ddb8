# A storage account with a container of its own, and a managed identity that may use it. Pods on AKS may act as it.

terraform {
  required_version = ">= 1.5"
  required_providers {
    azurerm = {
      source  = "hashicorp/azurerm"
      version = ">= 4.9"
    }
  }
}

provider "azurerm" {
  features {}
  # The account takes no keys.
  storage_use_azuread = true
}

variable "resource_group" {
  description = "An existing resource group"
  type        = string
}

variable "location" {
  type    = string
  default = "westeurope"
}

variable "account" {
  description = "The storage account's name, unique in the world: 3 to 24 small letters and digits"
  type        = string
}

variable "oidc_issuer_url" {
  description = "The issuer of the AKS cluster; empty: without AKS"
  type        = string
  default     = ""
}

variable "service_accounts" {
  description = "The Kubernetes service accounts that may act as the identity, as NAMESPACE:NAME"
  type        = list(string)
  default     = ["default:tenure", "default:tenure-agents"]
}

resource "azurerm_storage_account" "tenure" {
  name                            = var.account
  resource_group_name             = var.resource_group
  location                        = var.location
  account_tier                    = "Standard"
  account_replication_type        = "ZRS"
  min_tls_version                 = "TLS1_2"
  https_traffic_only_enabled      = true
  shared_access_key_enabled       = false
  allow_nested_items_to_be_public = false
}

resource "azurerm_storage_container" "tenure" {
  name                  = "tenure"
  storage_account_id    = azurerm_storage_account.tenure.id
  container_access_type = "private"
}

resource "azurerm_user_assigned_identity" "tenure" {
  name                = "tenure"
  resource_group_name = var.resource_group
  location            = var.location
}

resource "azurerm_role_assignment" "tenure" {
  scope                = azurerm_storage_container.tenure.id
  role_definition_name = "Storage Blob Data Contributor"
  principal_id         = azurerm_user_assigned_identity.tenure.principal_id
}

resource "azurerm_federated_identity_credential" "pods" {
  for_each            = var.oidc_issuer_url == "" ? toset([]) : toset(var.service_accounts)
  name                = replace(each.value, ":", "-")
  resource_group_name = var.resource_group
  parent_id           = azurerm_user_assigned_identity.tenure.id
  issuer              = var.oidc_issuer_url
  audience            = ["api://AzureADTokenExchange"]
  subject             = "system:serviceaccount:${each.value}"
}

output "store" {
  description = "Set AZURE_STORAGE_ACCOUNT_NAME to the account's name"
  value       = "az://${azurerm_storage_container.tenure.name}/tenure"
}

output "client_id" {
  description = "For the annotation azure.workload.identity/client-id"
  value       = azurerm_user_assigned_identity.tenure.client_id
}
