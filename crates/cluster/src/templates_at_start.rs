//! The wait for templates at the start of a cluster. Cluster Autoscaler's first loop must have all groups to choose
//! from, with their templates.

use std::time::Duration;

use parking_lot::Mutex;
use tokio::time::Instant;

use index::Index;

/// The reason for which Refresh fails meanwhile.
pub(super) const FIRST_TEMPLATES: &str = "the first list isn't complete yet";

/// The maximum time after the sync of the core kinds for which Refresh fails while templates aren't listed yet.
const TEMPLATES_AT_START: Duration = Duration::from_secs(10);

/// The wait for templates of one index.
#[derive(Default)]
pub(super) struct TemplatesAtStart(Mutex<Start>);

/// The progress of the start.
#[derive(Default)]
enum Start {
    /// Core kinds aren't in sync yet.
    #[default]
    CoreKinds,
    /// The templates that groups name are still in their first list.
    Templates { until: Instant },
    /// Nothing is awaited any more: a template that can't be read affects only its own groups.
    Over,
}

impl TemplatesAtStart {
    /// Returns true once nothing is awaited any more.
    pub(super) fn is_over(&self) -> bool {
        matches!(*self.0.lock(), Start::Over)
    }

    /// Returns true if the start still waits for templates, given that the core kinds are in sync. Ends the first sync
    /// of the index once it doesn't.
    pub(super) fn are_awaited(&self, index: &Index) -> bool {
        let mut start = self.0.lock();
        let now = Instant::now();
        if let Start::CoreKinds = *start {
            *start = Start::Templates { until: now + TEMPLATES_AT_START };
        }
        let waits = match *start {
            Start::Templates { until } => now < until && !index.has_settled(),
            Start::CoreKinds | Start::Over => false,
        };
        let ends = !waits && !matches!(*start, Start::Over);
        if ends {
            *start = Start::Over;
        }
        drop(start);
        if ends {
            index.end_first_sync();
        }
        waits
    }
}
