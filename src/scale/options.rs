//! The choices of an operator about writes.

/// The choices of an operator about writes.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct ScaleOptions {
    /// For requests to delete instances of a MachinePool that aren't Machines.
    pub machine_pool_deletes: MachinePoolDeletes,
    /// For requests that name Machines without a Node at the minimum.
    pub at_min_size: AtMinSize,
    /// Nothing is written, and nothing that was begun is finished: commands only say what they would do.
    pub read_only: bool,
}

/// The fate of requests to delete instances of a MachinePool that aren't Machines.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub enum MachinePoolDeletes {
    /// The size is lowered, and the infrastructure provider chooses which instance goes.
    #[default]
    Lower,
    /// They are refused.
    Refuse,
}

/// The fate of requests that name Machines without a Node at the minimum.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub enum AtMinSize {
    /// One of the Machines is replaced from time to time.
    #[default]
    Replace,
    /// They are refused.
    Refuse,
}
