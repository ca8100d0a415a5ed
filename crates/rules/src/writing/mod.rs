//! What a write is decided on: the version of a group's object, why it may not be written, and how a call fails.

mod call_error;
mod size_writer;
mod version;

use jiff::Timestamp;

pub use self::{
    call_error::CallError,
    size_writer::{SizeWriter, SizedBy, is_own, manager},
    version::GroupVersion,
};
use crate::{Excluded, RolloutCause};

/// The reason for which a group can't be written.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum NotScalable {
    /// The group doesn't exist.
    Unknown,
    /// It was a group at the last Refresh and isn't one now.
    Excluded(Excluded),
}

/// The rollout of a group, in progress or about to begin.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Ongoing {
    /// The evidence for it.
    pub cause: RolloutCause,
    /// The time of its beginning: from the objects, or else the time at which this process first saw it.
    pub since: Timestamp,
}
