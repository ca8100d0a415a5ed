//! The standing of an object as a node group: the one place that says whether it is a group, and why not.

use std::slice;

use nodegroup::{Exclusion, Problem};

/// The standing of a MachineDeployment, MachineSet or MachinePool. `G` is the data that a live group carries.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub enum Standing<G = ()> {
    /// It is a group.
    Live(G),
    /// The rules exclude it for this reason, with these problems.
    Excluded(Exclusion, Vec<Problem>),
    /// Its infrastructure template hasn't been read yet, and nothing else lets it scale from zero.
    Waiting,
    /// Its object doesn't decode.
    Undecodable(Problem),
    /// There is no such object. A former group is served with its last values until the next Refresh.
    #[default]
    Gone,
}

/// A [`Standing`] without its details.
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub enum StandingKind {
    /// It is a group.
    Live,
    /// The rules exclude it.
    Excluded(Exclusion),
    /// It may be one once its infrastructure template has been read.
    Waiting,
    /// Its object doesn't decode.
    Undecodable,
    /// The object doesn't exist.
    Gone,
}

impl<G> Standing<G> {
    /// Returns the standing without its details.
    pub fn kind(&self) -> StandingKind {
        match self {
            Self::Live(_) => StandingKind::Live,
            Self::Excluded(reason, _) => StandingKind::Excluded(*reason),
            Self::Waiting => StandingKind::Waiting,
            Self::Undecodable(_) => StandingKind::Undecodable,
            Self::Gone => StandingKind::Gone,
        }
    }

    /// Returns the problems of an object that is no group.
    pub fn problems(&self) -> &[Problem] {
        match self {
            Self::Excluded(_, problems) => problems,
            Self::Undecodable(problem) => slice::from_ref(problem),
            Self::Live(_) | Self::Waiting | Self::Gone => &[],
        }
    }

    /// Returns true if the object is a group.
    pub(super) fn is_live(&self) -> bool {
        matches!(self, Self::Live(_))
    }
}

impl StandingKind {
    /// Returns the word for it in metrics and in JSON.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Live => "served",
            Self::Excluded(reason) => reason.as_str(),
            Self::Waiting => "waiting_for_template",
            Self::Undecodable => "undecodable",
            Self::Gone => "gone",
        }
    }

    /// Returns true if a mistake is the reason why it is no group.
    #[must_use]
    pub fn is_error(self) -> bool {
        match self {
            Self::Excluded(reason) => reason.is_error(),
            Self::Undecodable => true,
            Self::Live | Self::Waiting | Self::Gone => false,
        }
    }

    /// Returns the reason why it is no group, for people.
    #[must_use]
    pub fn message(self) -> String {
        match self {
            Self::Live => "it is a node group".to_owned(),
            Self::Excluded(reason) => reason.to_string(),
            Self::Waiting => {
                "it has no replicas, and its infrastructure template hasn't been read yet: the checks say why"
                    .to_owned()
            }
            Self::Undecodable => "its object can't be read".to_owned(),
            Self::Gone => "its object was deleted".to_owned(),
        }
    }
}
