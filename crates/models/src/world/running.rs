//! A command of the simple rule in progress: delete first, then lower.

use super::set::Set;

/// The next call of a command.
#[derive(Clone, Copy, Debug, Default, Eq, Hash, PartialEq, PartialOrd)]
pub enum Stage {
    /// There is no command.
    #[default]
    Idle,
    /// Machines are deleted by name, side by side.
    Delete,
    /// The Machines are listed, to count placeholders.
    Count,
    /// The smaller size is written.
    Lower,
    /// The smaller size was written without an answer, and is read.
    Settle,
    /// The greater size is written.
    Raise,
    /// The greater size was written without an answer, and is read.
    SettleRaise,
}

/// A command in progress.
#[derive(Clone, Copy, Debug, Default, Eq, Hash, PartialEq, PartialOrd)]
pub struct Running {
    /// The next call.
    pub stage: Stage,
    /// The Machines that its callers name.
    pub named: Set,
    /// Those that are named as ones that never joined.
    pub bare: Set,
    /// The Machines that it still has to mark, where it does so.
    pub unmarked: Set,
    /// The Machines that it still has to delete.
    pub left: Set,
    /// The Machines that haven't changed since it knows their version.
    pub current: Set,
    /// The Machines whose DELETE had no answer, and that it still has to read.
    pub unsure: Set,
    /// The Machines that it has deleted: the size is to be lowered for these.
    pub ours: Set,
    /// The number of placeholders that it is to give up.
    pub places: i8,
    /// The number of these that it has counted.
    pub counted: i8,
    /// The size that its next write tests.
    pub size: i8,
    /// True if it can't be answered OK.
    pub has_failed: bool,
}
