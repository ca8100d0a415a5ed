//! The limit of log lines for refused and failed commands: the first of a group and reason at once, and those that
//! follow within a minute as a sum. A caller could fill the log otherwise. It must never concern a command that is
//! done.

use std::{collections::BTreeMap, time::Duration};

use nodegroup::GroupId;
use parking_lot::Mutex;
use tokio::time::Instant;

/// The time after a log line in which refusals of the same kind are only counted.
const PAUSE: Duration = Duration::from_secs(60);
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

/// The last logged refusal of each kind, and the number of later ones.
#[derive(Debug, Default)]
pub(super) struct Refusals(Mutex<BTreeMap<Kind, Logged>>);

#[derive(Debug)]
struct Logged {
    at: Instant,
    more: u64,
}

impl Refusals {
    /// Counts a refusal. Returns true if it has to be logged.
    pub(super) fn must_log(&self, mut kind: Kind) -> bool {
        let mut all = self.0.lock();
        if all.len() >= MOST && !all.contains_key(&kind) {
            kind.group = None;
        }
        if let Some(logged) = all.get_mut(&kind) {
            logged.more += 1;
            return false;
        }
        all.insert(kind, Logged { at: Instant::now(), more: 0 });
        true
    }

    /// Takes the kinds whose minute is over, and returns the sums of what wasn't logged.
    pub(super) fn take_sums(&self) -> Vec<(Kind, u64)> {
        let now = Instant::now();
        let mut sums = Vec::new();
        self.0.lock().retain(|kind, logged| {
            let is_over = now.duration_since(logged.at) >= PAUSE;
            if is_over && logged.more > 0 {
                sums.push((kind.clone(), logged.more));
            }
            !is_over
        });
        sums
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    fn kind(name: usize) -> Kind {
        let group = GroupId::parse(&format!("MachineDeployment/team-a/g{name}"));
        Kind { group, command: "increase", code: "NOT_FOUND" }
    }

    #[tokio::test(start_paused = true)]
    async fn the_first_refusal_of_a_kind_is_logged_and_the_others_of_its_minute_are_a_sum() {
        let refusals = Refusals::default();
        assert!(refusals.must_log(kind(1)) && refusals.must_log(kind(2)));
        for _ in 0..10_000 {
            assert!(!refusals.must_log(kind(1)));
        }
        assert_eq!(refusals.take_sums(), []);
        tokio::time::advance(PAUSE).await;
        assert_eq!(refusals.take_sums(), [(kind(1), 10_000)]);
        assert!(refusals.must_log(kind(1)), "after its minute the next is logged at once");
        assert_eq!(refusals.take_sums(), []);
    }

    #[tokio::test(start_paused = true)]
    async fn the_number_of_kinds_is_bounded_whatever_the_number_of_groups() {
        let refusals = Refusals::default();
        let logged = (0..10 * MOST).filter(|name| refusals.must_log(kind(*name))).count();
        assert_eq!((logged, refusals.0.lock().len()), (MOST + 1, MOST + 1));
        tokio::time::advance(PAUSE).await;
        let sum: u64 = refusals.take_sums().iter().map(|(_, more)| more).sum();
        assert_eq!(usize::try_from(sum).unwrap(), 10 * MOST - logged);
    }
}
