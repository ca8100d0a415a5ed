//! What differs from version to version in what Cluster Autoscaler asks, beside the fields: as recorded of the binaries that
//! docs/testing.md names, and held against their sources. Only the driver goes by it.

use super::Version;

/// How often options are asked for to judge how much a Node is used, of each Node that the minimum lets go.
pub(super) const QUESTIONS_ABOUT_USE: usize = 2;

/// How often options are asked for before Nodes go: for each group, and for each of its Nodes that goes.
pub(super) const QUESTIONS_ABOUT_GOING: (usize, usize) = (1, 3);

/// How a version goes about its loops.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Pattern {
    /// Whether a loop that has scaled up, or failed to, looks for idle Nodes too.
    pub(super) goes_on_after_scale_up: bool,
    /// Whether all sizes are asked for before groups are considered for pods that are pending.
    pub(super) sizes_before_scale_up: bool,
    /// Whether it is asked then of which group each Node is that is coming.
    pub(super) asks_about_upcoming: bool,
    /// How often options are asked for about every Node of a group, for the time that it may take to start.
    pub(super) about_start: usize,
    /// How often options are asked for about an idle Node, before sizes are asked for once more.
    pub(super) about_idle: usize,
    /// And after that.
    pub(super) about_idle_late: usize,
    /// Whether an increase that takes too long is taken back as a whole.
    pub(super) takes_back: bool,
    /// Whether the template is asked for about each Node that is there at the start.
    pub(super) templates_of_nodes: bool,
    /// And about each that was deleted.
    pub(super) templates_of_deleted: bool,
}

impl Pattern {
    pub(super) fn of(version: Version) -> Self {
        let since = |minor| version.minor >= minor;
        Self {
            goes_on_after_scale_up: since(34),
            sizes_before_scale_up: !since(35),
            asks_about_upcoming: since(35),
            about_start: if since(35) { 2 } else { 0 },
            about_idle: if since(35) { 2 } else { 1 },
            about_idle_late: if since(35) { 0 } else { 1 },
            takes_back: since(36),
            templates_of_nodes: since(35),
            templates_of_deleted: since(36),
        }
    }
}
