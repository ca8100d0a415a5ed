//! The limit of log lines for refused and failed commands: the first of a group and reason at once, and those that follow
//! within a minute as a sum. A caller could fill the log otherwise. It never concerns a command that is done, or may be.

use parking_lot::Mutex;
use rules::{GroupId, log_limit::LogLimit};
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

    /// Logs the sums of refused and failed commands whose minute is over.
    pub(super) fn sum_up(&self) {
        let over = self.0.lock().over(Instant::now().into_std());
        for (Kind { group, command, code }, more) in over {
            let group = group.map_or_else(|| "(none that is known)".to_owned(), |group| group.to_string());
            tracing::warn!(group, command, code, more, "further commands were refused or failed");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn group(name: &str) -> GroupId {
        GroupId::parse(&format!("MachineDeployment/team-a/{name}")).unwrap()
    }

    #[tokio::test(start_paused = true)]
    async fn the_number_of_kinds_is_bounded_whatever_the_number_of_groups() {
        let kind =
            |name: usize| Kind { group: Some(group(&format!("g{name}"))), command: "increase", code: "NOT_FOUND" };
        let refusals = Refusals::default();
        let logged = (0..10 * MOST).filter(|name| refusals.allows(kind(*name)).is_some()).count();
        assert_eq!(logged, MOST + 1);
        tokio::time::advance(rules::log_limit::PAUSE).await;
        let sum: u64 = refusals.0.lock().over(Instant::now().into_std()).iter().map(|(_, more)| more).sum();
        assert_eq!(usize::try_from(sum).unwrap(), 10 * MOST - logged);
    }
}
