//! What real Nodes showed: the resources and labels that another Node made from the same templates will have. Which Node
//! is asked, and for how long its answer is kept, is decided in [`crate::index`].

use std::collections::BTreeMap;

use arcstr::ArcStr;

use super::{GroupId, LearnedFrom, Quantity, Source};
use crate::capi::{Node, TemplateLabels};

/// What a Node showed.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Lesson {
    /// The Node's name.
    pub node: ArcStr,
    /// The group it belongs to, or belonged to.
    pub group: GroupId,
    /// Its resources.
    pub resources: BTreeMap<ArcStr, Amounts>,
    /// Its labels that a template takes over.
    pub labels: TemplateLabels,
}

/// What a Node has of a resource.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Amounts {
    /// In all.
    pub capacity: Quantity,
    /// For pods: never more than the capacity, never less than 0.
    pub allocatable: Quantity,
}

impl Amounts {
    /// What pods don't get.
    #[must_use]
    pub fn overhead(self) -> Quantity {
        self.capacity - self.allocatable
    }
}

/// What is known of the real Nodes of a group.
#[derive(Clone, Copy, Debug, Default)]
pub struct RealNodes<'a> {
    /// A Node that the group has.
    pub sample: Option<&'a Node>,
    /// What a Node showed that was made from the group's own templates.
    pub same_templates: Option<&'a Lesson>,
    /// What a Node of the group showed that was made from other templates, which the group had before.
    pub other_templates: Option<&'a Lesson>,
}

impl Lesson {
    /// As the source of a value of a group.
    #[must_use]
    pub fn source_for(&self, group: &GroupId) -> Source {
        let sibling = (self.group != *group).then(|| self.group.clone());
        Source::Learned(Box::new(LearnedFrom { node: self.node.clone(), sibling }))
    }
}
