//! The memory of the copies of the program.

use super::set::Set;

/// The state of a copy of the program.
#[derive(Clone, Copy, Debug, Default, Eq, Hash, PartialEq)]
pub enum At {
    /// No command.
    #[default]
    Idle,
    /// It has seen the MachineDeployment, and then each named Machine.
    Viewed,
    /// Its named Machines are in the log.
    Logged,
    /// The size write was refused for good.
    TakingBack,
    /// It is to count which replicas have no Machine.
    Counting,
    /// It has one half of what it counts by: the Machines, or the MachineDeployment.
    HalfCounted,
    /// It is to lower the size for replicas that have no Machine.
    Counted,
}

/// The memory of one copy of the program, which a crash takes away.
#[derive(Clone, Copy, Debug, Default, Eq, Hash, PartialEq)]
pub struct Memory {
    /// Its state.
    pub at: At,
    /// The Machines that its command names.
    pub named: Set,
    /// Of these, those it is going to log (when viewed), or has marked (afterwards).
    pub done: Set,
    /// Of the named ones, those that it gives up as Machines that never joined.
    pub never_joined: Set,
    /// True if its command only lowers the target size.
    pub is_soft: bool,
    /// Of those it is going to log, the ones that are being deleted, which lower the size by what was counted.
    pub counted: Set,
    /// True if the MachineDeployment's generation is still the one viewed.
    pub is_fresh: bool,
    /// The log as viewed: a fingerprint of its entries, or for variants that compare values who is in it.
    pub viewed_log: u32,
    /// For variants that compare values: the size as viewed.
    pub viewed_replicas: Option<i8>,
    /// The placeholders that its command names.
    pub places: Places,
}

/// The memory of a command that names placeholders.
#[derive(Clone, Copy, Debug, Default, Eq, Hash, PartialEq)]
pub struct Places {
    /// The number it names, but for those that have entries by now.
    pub asked: i8,
    /// The size that it saw first, or on which its Machines were logged, less what it has lowered for those.
    pub first_size: i8,
    /// The number its next write lowers, or its last write may have lowered.
    pub to_lower: i8,
    /// The number by which it has lowered the size indeed.
    pub lowered: i8,
    /// True once its Machines that are being deleted have been decided: the rest is counted by itself.
    pub is_accepted: bool,
    /// The number that is left for the rest, once its Machines are logged.
    pub rest: i8,
    /// True if its answer to the last write was lost.
    pub is_unknown: bool,
    /// The size from which that write lowered it.
    pub unknown_from: i8,
    /// The number of writes of the size since that one, 3 for more.
    pub writes_since: u8,
    /// True if a write has failed.
    pub has_failed: bool,
    /// The half that it has counted by.
    pub half: Count,
}

/// By what placeholders are counted.
#[derive(Clone, Copy, Debug, Default, Eq, Hash, PartialEq)]
pub struct Count {
    /// Machines that are alive, or are being deleted and have their Node.
    pub there: Set,
    /// Machines that are being deleted and have no Node.
    pub hanging: Set,
    /// Machines in the log.
    pub logged: Set,
    /// Of these, soft ones.
    pub soft: Set,
    /// Of these, the wanted ones.
    pub wanted: Set,
    /// The size.
    pub size: i8,
    /// A fingerprint of the log.
    pub log: u32,
}
