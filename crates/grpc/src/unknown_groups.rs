//! Reports of calls for groups that an index doesn't have. A group of another Cluster is answered as one that doesn't
//! exist, so only the operator may learn the difference.

use std::sync::Arc;

use nodegroup::GroupId;

use super::Service;
use server::Client;

/// A receiver of calls for groups that the index of a [`Service`] doesn't have. Its calls must be
/// quick, and have no effect on the answer.
pub trait UnknownGroups: Send + Sync + 'static {
    /// A client has asked for this group.
    fn asked_for(&self, group: &GroupId, client: Option<&Client>);
}

impl Service {
    /// Reports calls for groups that the index doesn't have.
    #[must_use]
    pub fn reporting_unknown_groups(self, to: Arc<dyn UnknownGroups>) -> Self {
        Self { unknown_groups: Some(to), ..self }
    }

    /// Reports a call for a group that the index doesn't have, if somebody wants to know.
    pub(super) fn report_unknown(&self, group: &GroupId, client: Option<&Client>) {
        if let Some(unknown_groups) = &self.unknown_groups {
            unknown_groups.asked_for(group, client);
        }
    }
}
