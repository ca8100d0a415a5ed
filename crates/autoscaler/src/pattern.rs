//! The differences from version to version in Cluster Autoscaler's calls, beside the fields: as recorded of the binaries
//! that docs/how-to/testing.md names, and checked against their sources. 1.37 behaves as 1.36 does. Only the driver uses
//! them.

use super::Version;

/// The number of calls for options to judge the utilization of a Node, for each Node that the minimum lets go.
pub(crate) const QUESTIONS_ABOUT_USE: usize = 2;

/// The number of calls for options before Nodes go: for each group, and for each of its Nodes that goes.
pub(crate) const QUESTIONS_ABOUT_GOING: (usize, usize) = (1, 3);

/// The behaviour of a version in its loops.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Pattern(Version);

impl Pattern {
    pub(crate) fn of(version: Version) -> Self {
        Self(version)
    }

    fn since(self, minor: u32) -> bool {
        self.0.minor >= minor
    }

    /// Returns true if a loop that has scaled up, or failed to, looks for idle Nodes too.
    pub(crate) fn goes_on_after_scale_up(self) -> bool {
        self.since(34)
    }

    /// Returns true if all sizes are asked for before groups are considered for pods that are pending.
    pub(crate) fn asks_for_sizes_before_scale_up(self) -> bool {
        !self.since(35)
    }

    /// Returns true if the group of each Node that is coming is asked for before groups are considered for pending pods.
    pub(crate) fn asks_about_upcoming(self) -> bool {
        self.since(35)
    }

    /// Returns the number of calls for options about every Node of a group, for the time that it may take to start.
    pub(crate) fn questions_about_start(self) -> usize {
        if self.since(35) { 2 } else { 0 }
    }

    /// Returns the number of calls for options about an idle Node before sizes are asked for once more, and after that.
    pub(crate) fn questions_about_idle(self) -> (usize, usize) {
        if self.since(35) { (2, 0) } else { (1, 1) }
    }

    /// Returns true if pods are thought to fit on Nodes that a group's size lacks, though no increase of it is under way:
    /// for ever, where a replica is neither a Node nor an instance that has been waited for too long.
    pub(crate) fn expects_nodes_nobody_waits_for(self) -> bool {
        !self.since(36)
    }

    /// Returns true if a Node that is there and isn't starting counts as one that has come, even if it is going.
    pub(crate) fn counts_nodes_that_go(self) -> bool {
        !self.since(36)
    }

    /// Returns true if options that a group has of its own end the time that its Nodes may take to start: it isn't in the
    /// protocol.
    pub(crate) fn loses_startup_time(self) -> bool {
        self.since(35)
    }

    /// Returns true if a loop follows at once on one that has scaled something.
    pub(crate) fn follows_at_once(self) -> bool {
        self.since(35)
    }

    /// Returns true if an increase that takes too long is taken back as a whole.
    pub(crate) fn takes_back(self) -> bool {
        self.since(36)
    }

    /// Returns true if the template is asked for about each Node that is there at the start.
    pub(crate) fn asks_for_templates_of_nodes(self) -> bool {
        self.since(35)
    }

    /// Returns true if the template is asked for about each Node that was deleted.
    pub(crate) fn asks_for_templates_of_deleted(self) -> bool {
        self.since(36)
    }
}
