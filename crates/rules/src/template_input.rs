//! The inputs of a group's template: the operator's rules, the group, and the observations of its Nodes.

use crate::capi::ScalableResource;
use regex::Regex;

use super::{Architecture, GroupId, observed_resources::RealNodes, resource_list::ResourceList};

/// The operator's rules for all templates.
#[derive(Clone, Debug)]
pub struct TemplateRules {
    /// The architecture if nothing else states it (`CAPI_SCALE_ZERO_DEFAULT_ARCH`).
    pub default_arch: Architecture,
    /// The regular expressions of Cluster API's flag `--additional-sync-machine-labels`. They match label keys,
    /// unanchored.
    pub additional_sync_labels: Vec<Regex>,
    /// The capacity of a Node that pods can't use, if no other source states it.
    pub default_overhead: ResourceList,
    /// True if resources other than cpu, memory, local disk and pods are taken from observed Nodes.
    pub learn_extended_resources: bool,
}

impl TemplateRules {
    /// The flag behind [`default_arch`](Self::default_arch).
    pub(crate) const DEFAULT_ARCH_FLAG: &str = "--scale-zero-default-arch";
    /// The flag behind [`default_overhead`](Self::default_overhead).
    pub const DEFAULT_OVERHEAD_FLAG: &str = "--default-node-overhead";
}

impl Default for TemplateRules {
    fn default() -> Self {
        Self {
            default_arch: Architecture::default(),
            additional_sync_labels: Vec::new(),
            default_overhead: ResourceList::new(),
            learn_extended_resources: true,
        }
    }
}

/// The inputs of a template other than the infrastructure template.
pub(super) struct Context<'a> {
    pub(super) group: &'a ScalableResource,
    pub(super) id: GroupId,
    pub(super) nodes: RealNodes<'a>,
    pub(super) rules: &'a TemplateRules,
}
