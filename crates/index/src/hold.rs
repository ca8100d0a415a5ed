//! Groups that are left alone for a while, since writes of them come to nothing. Cluster Autoscaler would drain Node
//! after Node, or raise the size in every loop. Options keep it from choosing their Nodes meanwhile.

use std::time::Duration;

use arcstr::ArcStr;
use nodegroup::{GroupId, Overrides, rollout};
use tokio::time::Instant;

use super::Index;

/// The reason why a group is left alone.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum Hold {
    /// The API server refuses to delete a Machine, or to lower the size: a right is missing, or a webhook or policy
    /// denies it. Holds its words.
    DeletesRefused(String),
    /// This field manager keeps putting the size back.
    SizePutBack(ArcStr),
}

/// A hold, and the time at which it ends.
#[derive(Clone, Debug)]
pub(super) struct Held {
    why: Hold,
    until: Instant,
}

impl Hold {
    /// Returns the time for which a group is left alone before the next write is tried.
    fn lasts(&self) -> Duration {
        match self {
            Self::DeletesRefused(_) => Duration::from_secs(10 * 60),
            Self::SizePutBack(_) => Duration::from_secs(30 * 60),
        }
    }

    /// Returns the reason, for people.
    #[must_use]
    pub fn reason(&self) -> String {
        match self {
            Self::DeletesRefused(why) => {
                format!("its Nodes aren't scaled down for now, since the API server refuses it: {why}")
            }
            Self::SizePutBack(manager) => format!(
                "its size isn't changed for now, since field manager {manager} keeps putting it back: leave spec.replicas \
                 out of what it applies to this group, once both size annotations are set, or the group out of autoscaling"
            ),
        }
    }
}

impl Held {
    pub(super) fn why(&self) -> Option<&Hold> {
        (Instant::now() < self.until).then_some(&self.why)
    }
}

impl Index {
    /// Leaves a group alone for a while, or ends that. A size that is put back is the stronger reason.
    pub fn hold(&self, id: &GroupId, why: Option<Hold>) {
        let mut inner = self.inner.write();
        let Some(group) = inner.live.groups.get_mut(id) else { return };
        let is_put_back = matches!(group.held.as_ref().and_then(Held::why), Some(Hold::SizePutBack(_)));
        if is_put_back && !matches!(why, Some(Hold::SizePutBack(_))) {
            return;
        }
        group.held = why.map(|why| Held { until: Instant::now() + why.lasts(), why });
    }

    /// Returns the reason why a group is left alone now.
    #[must_use]
    pub fn held(&self, id: &GroupId) -> Option<Hold> {
        self.inner.read().live.groups.get(id)?.held.as_ref()?.why().cloned()
    }

    /// Returns true if the API server has refused to delete Machines of a group lately.
    #[must_use]
    pub fn are_deletes_refused(&self, id: &GroupId) -> bool {
        matches!(self.held(id), Some(Hold::DeletesRefused(_)))
    }

    /// Returns the options for Cluster Autoscaler: the served ones, or those that keep the Nodes of a group that is left
    /// alone from being chosen.
    #[must_use]
    pub fn options(&self, id: &GroupId) -> Option<Overrides> {
        let inner = self.inner.read();
        let group = inner.live.groups.get(id)?;
        let options = &group.served.as_ref()?.options;
        let is_held = group.held.as_ref().is_some_and(|held| held.why().is_some());
        Some(if is_held { rollout::hold(options) } else { options.clone() })
    }
}
