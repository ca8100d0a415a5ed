//! Changes of Kubernetes objects as they happen: [`changes`] computes the difference between two states of an object,
//! [`notify`] sends differences to webhooks, and [`watch`] follows the resources of a cluster and reports their changes
//! to a program and to webhooks. Nothing here may write to a cluster.
//!
//! Informers are used without an index. A projection keeps the JSON of an object without noise and with secrets
//! redacted; a digest with a random key shows that a secret changed. The program and the notifications are two handlers
//! of each informer. The program's may block: the informer then merges the events that wait. The other only renders a
//! change and queues it for each matching rule, and one task per rule sends.

pub mod changes;
pub mod notify;
pub mod watch;
