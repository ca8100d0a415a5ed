//! Changes of Kubernetes objects as they happen: [`changes`] has the difference between two states of an object, [`notify`]
//! sends differences to webhooks, and [`watch`] follows the resources of a cluster and reports their changes to both a
//! program and the webhooks. Nothing here may write to a cluster.

pub mod changes;
pub mod notify;
pub mod watch;
