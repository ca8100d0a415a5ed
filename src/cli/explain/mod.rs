//! `explain`: what Cluster Autoscaler is told of a node group and why.

mod manifests;
