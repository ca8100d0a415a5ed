//! The limit of log lines for refused and failed commands: the first of a group and reason at once, and those that
//! follow within a minute as a sum. A caller could fill the log otherwise. It must never concern a command that is
//! done, or may be.

use parking_lot::Mutex;
use rules::GroupId;
use rules::text::LogLimit;
use tokio::time::Instant;

/// The maximum number of kinds. Those beyond it count as refusals of groups that aren't known.
const MOST: usize = 1_000;

/// The kind of a refusal.
#[derive(Clone, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub(super) struct Kind {
    /// Its group; `None` if none is known by that id, of which a caller may make up any number.
    pub(super) group: Option<GroupId>,
    pub(super) command: &'static str,
    pub(super) code: &'static str,
}

/// The refusals of the last minute.
#[derive(Debug)]
pub(super) struct Refusals(Mutex<LogLimit<Kind>>);

impl Default for Refusals {
    fn default() -> Self {
        Self(Mutex::new(LogLimit::new(1)))
    }
}

impl Refusals {
    /// Counts a refusal. Returns the number of earlier ones that weren't logged, if this one has to be logged.
    pub(super) fn allows(&self, mut kind: Kind) -> Option<u64> {
        let mut limit = self.0.lock();
        if !limit.may_count(&kind, MOST) {
            kind.group = None;
        }
        limit.allows(kind, 1, Instant::now().into_std())
    }

    /// Takes the kinds whose minute is over, and returns the sums of what wasn't logged.
    pub(super) fn take_sums(&self) -> Vec<(Kind, u64)> {
        self.0.lock().over(Instant::now().into_std())
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn the_number_of_kinds_is_bounded_whatever_the_number_of_groups() {
        let kind = |name: usize| {
            let group = GroupId::parse(&format!("MachineDeployment/team-a/g{name}"));
            Kind { group, command: "increase", code: "NOT_FOUND" }
        };
        let refusals = Refusals::default();
        let logged = (0..10 * MOST).filter(|name| refusals.allows(kind(*name)).is_some()).count();
        assert_eq!(logged, MOST + 1);
        tokio::time::advance(rules::text::PAUSE).await;
        let sum: u64 = refusals.take_sums().iter().map(|(_, more)| more).sum();
        assert_eq!(usize::try_from(sum).unwrap(), 10 * MOST - logged);
    }
}
