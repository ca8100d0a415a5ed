//! What differs from version to version in what Cluster Autoscaler asks, beside the fields: as recorded of the binaries that
//! docs/testing.md names, and held against their sources. 1.37 goes about it as 1.36 does. Only the driver goes by it.

use super::Version;

/// How often options are asked for to judge how much a Node is used, of each Node that the minimum lets go.
pub(crate) const QUESTIONS_ABOUT_USE: usize = 2;

/// How often options are asked for before Nodes go: for each group, and for each of its Nodes that goes.
pub(crate) const QUESTIONS_ABOUT_GOING: (usize, usize) = (1, 3);

/// How a version goes about its loops.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Pattern(Version);

impl Pattern {
    pub(crate) fn of(version: Version) -> Self {
        Self(version)
    }

    fn since(self, minor: u32) -> bool {
        self.0.minor >= minor
    }

    /// Whether a loop that has scaled up, or failed to, looks for idle Nodes too.
    pub(crate) fn goes_on_after_scale_up(self) -> bool {
        self.since(34)
    }

    /// Whether all sizes are asked for before groups are considered for pods that are pending.
    pub(crate) fn asks_for_sizes_before_scale_up(self) -> bool {
        !self.since(35)
    }

    /// Whether it is asked then of which group each Node is that is coming.
    pub(crate) fn asks_about_upcoming(self) -> bool {
        self.since(35)
    }

    /// How often options are asked for about every Node of a group, for the time that it may take to start.
    pub(crate) fn questions_about_start(self) -> usize {
        if self.since(35) { 2 } else { 0 }
    }

    /// How often options are asked for about an idle Node before sizes are asked for once more, and after that.
    pub(crate) fn questions_about_idle(self) -> (usize, usize) {
        if self.since(35) { (2, 0) } else { (1, 1) }
    }

    /// True if pods are thought to fit on Nodes that a group's size lacks, though no increase of it is under way: for ever, where a replica
    /// is neither a Node nor an instance that has been waited for too long.
    pub(crate) fn expects_nodes_nobody_waits_for(self) -> bool {
        !self.since(36)
    }

    /// True if a Node that is there and isn't starting counts as one that has come, even if it is going.
    pub(crate) fn counts_nodes_that_go(self) -> bool {
        !self.since(36)
    }

    /// True if options that a group has of its own end the time that its Nodes may take to start: it isn't in the protocol.
    pub(crate) fn loses_startup_time(self) -> bool {
        self.since(35)
    }

    /// True if a loop follows at once on one that has scaled something.
    pub(crate) fn follows_at_once(self) -> bool {
        self.since(35)
    }

    /// Whether an increase that takes too long is taken back as a whole.
    pub(crate) fn takes_back(self) -> bool {
        self.since(36)
    }

    /// Whether the template is asked for about each Node that is there at the start.
    pub(crate) fn asks_for_templates_of_nodes(self) -> bool {
        self.since(35)
    }

    /// Whether the template is asked for about each Node that was deleted.
    pub(crate) fn asks_for_templates_of_deleted(self) -> bool {
        self.since(36)
    }
}
