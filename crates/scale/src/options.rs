//! The operator's choices about writes.

use rules::{ErrorRules, Grace};

/// The operator's choices about writes.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct ScaleOptions {
    /// The handling of requests to delete instances of a MachinePool that aren't Machines.
    pub machine_pool_deletes: MachinePoolDeletes,
    /// The handling of requests at the min size that name Machines without a Node.
    pub at_min_size: AtMinSize,
    /// True if nothing is written: commands only report what they would do.
    pub read_only: bool,
}

impl ScaleOptions {
    /// Returns the rules for failed Machines that agree with these choices.
    #[must_use]
    pub fn error_rules(self, grace: Grace) -> ErrorRules {
        ErrorRules { deletes: !self.read_only, replaces_at_min: self.at_min_size == AtMinSize::Replace, grace }
    }
}

/// The handling of requests to delete instances of a MachinePool that aren't Machines.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub enum MachinePoolDeletes {
    /// The size is lowered, and the infrastructure provider chooses which instance goes.
    #[default]
    Lower,
    /// They are refused.
    Refuse,
}

/// The handling of requests at the min size that name Machines without a Node.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub enum AtMinSize {
    /// One of the Machines is replaced from time to time.
    #[default]
    Replace,
    /// They are refused.
    Refuse,
}
