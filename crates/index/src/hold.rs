//! Groups that are left alone for a while, since writes of them come to nothing. Cluster Autoscaler would drain Node
//! after Node, or raise the size in every loop. Options keep it from choosing their Nodes meanwhile.

use std::time::Duration;

use arcstr::ArcStr;
use tokio::time;

/// The time for which no Node is scaled down after a refused delete: somebody has to change a right or a policy first.
const REFUSED_DELETES_HOLD_FOR: Duration = Duration::from_secs(10 * 60);
/// The time for which a size that was put back twice within an hour (size_observer.rs of `scale`) isn't raised: a GitOps
/// controller would put it back within minutes.
const SIZE_PUT_BACK_HOLDS_FOR: Duration = Duration::from_secs(30 * 60);

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
    pub(super) why: Hold,
    pub(super) until: time::Instant,
}

impl Hold {
    /// Returns the time for which a group is left alone before the next write is tried.
    pub(super) fn lasts(&self) -> Duration {
        match self {
            Self::DeletesRefused(_) => REFUSED_DELETES_HOLD_FOR,
            Self::SizePutBack(_) => SIZE_PUT_BACK_HOLDS_FOR,
        }
    }

    /// Returns the reason, for people.
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
        (time::Instant::now() < self.until).then_some(&self.why)
    }
}
