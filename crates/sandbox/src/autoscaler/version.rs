//! Versions of Cluster Autoscaler, the protocol fields that they know, and the differences between their calls. Those
//! were recorded from the binaries that e2e/README.md names, and checked against the sources. 1.37 behaves as
//! 1.36 does. Only the driver uses them.

use std::fmt;

/// A version of Cluster Autoscaler.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Version {
    /// The 36 of 1.36.1.
    pub minor: u32,
    /// The 1 of 1.36.1.
    pub patch: u32,
}

impl Version {
    /// Creates version 1.`minor`.`patch`.
    pub const fn new(minor: u32, patch: u32) -> Self {
        Self { minor, patch }
    }

    /// Parses a version such as `1.36.0-beta.1`.
    pub fn parse(text: &str) -> Option<Self> {
        let mut numbers = text.strip_prefix("1.")?.split('.');
        let minor = numbers.next()?.parse().ok()?;
        let patch = numbers.next()?;
        let patch = patch.split(['-', '+']).next()?.parse().ok()?;
        Some(Self { minor, patch })
    }

    /// Returns true if this version sends and reads the fields that embed Kubernetes' own messages for durations and
    /// Nodes.
    pub fn knows_old_fields(self) -> bool {
        self < Self::new(35, 0)
    }

    /// Returns true if this version sends and reads the fields that replace the old ones.
    pub fn knows_new_fields(self) -> bool {
        self >= Self::new(34, 2)
    }
}

impl fmt::Display for Version {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "1.{}.{}", self.minor, self.patch)
    }
}

/// The number of `NodeGroupGetOptions` calls for the utilization of a Node, for each Node that can be removed above the
/// min size.
pub(super) const OPTIONS_CALLS_FOR_UTILIZATION: usize = 2;

/// The number of `NodeGroupGetOptions` calls before a removal: per group, and per removed Node.
pub(super) const OPTIONS_CALLS_BEFORE_REMOVAL: (usize, usize) = (1, 3);

/// The behaviour of a version in its loops.
#[derive(Clone, Copy, Debug)]
pub(super) struct Pattern(Version);

impl Pattern {
    pub(super) fn of(version: Version) -> Self {
        Self(version)
    }

    fn since(self, minor: u32) -> bool {
        self.0.minor >= minor
    }

    /// Returns true if a loop that has scaled up, or failed to, still looks for idle Nodes.
    pub(super) fn goes_on_after_scale_up(self) -> bool {
        self.since(34)
    }

    /// Returns true if all sizes are fetched before groups are considered for pending Pods.
    pub(super) fn asks_for_sizes_before_scale_up(self) -> bool {
        !self.since(35)
    }

    /// Returns true if `NodeGroupForNode` is called for each upcoming Node before groups are considered for pending
    /// Pods.
    pub(super) fn asks_about_upcoming(self) -> bool {
        self.since(35)
    }

    /// Returns the number of `NodeGroupGetOptions` calls about every Node of a group, for its startup time.
    pub(super) fn questions_about_start(self) -> usize {
        if self.since(35) { 2 } else { 0 }
    }

    /// Returns the number of `NodeGroupGetOptions` calls about an idle Node before sizes are fetched again, and after
    /// that.
    pub(super) fn questions_about_idle(self) -> (usize, usize) {
        if self.since(35) { (2, 0) } else { (1, 1) }
    }

    /// Returns true if the Nodes missing from a group's size count as upcoming even without an increase under way. Pods
    /// that count on such a Node wait forever if it neither joins nor exceeds its provision time.
    pub(super) fn expects_nodes_nobody_waits_for(self) -> bool {
        !self.since(36)
    }

    /// Returns true if an existing Node that isn't starting counts as arrived even if it is being deleted.
    pub(super) fn counts_nodes_that_go(self) -> bool {
        !self.since(36)
    }

    /// Returns true if the options of a group drop the startup time, since the protocol has no field for it.
    pub(super) fn loses_startup_time(self) -> bool {
        self.since(35)
    }

    /// Returns true if a loop that has scaled something is followed at once by the next.
    pub(super) fn follows_at_once(self) -> bool {
        self.since(35)
    }

    /// Returns true if an increase that takes too long is reverted as a whole.
    pub(super) fn takes_back(self) -> bool {
        self.since(36)
    }

    /// Returns true if the template is fetched for each existing Node at the start.
    pub(super) fn asks_for_templates_of_nodes(self) -> bool {
        self.since(35)
    }

    pub(super) fn asks_for_templates_of_deleted(self) -> bool {
        self.since(36)
    }
}
