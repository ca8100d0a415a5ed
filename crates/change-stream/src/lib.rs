//! Changes of Kubernetes objects as they happen: [`changes`] computes the difference between two states of an object,
//! [`notify`] sends differences to webhooks, and [`watch`] follows the resources of a cluster and reports their changes
//! to a program and to webhooks. Nothing here may write to a cluster.

pub mod changes;
pub mod notify;
pub mod watch;
