//! What the log says only so often: commands that are refused or fail, and those that succeed without effect.

use std::{collections::HashMap, time::Duration};

use parking_lot::Mutex;
use rules::{GroupId, log_limit::LogLimit};
use tokio::time::Instant;

// The limit of log lines for refused and failed commands: the first of a group and reason at once, and those that follow
// within a minute as a sum. A caller could fill the log otherwise. It never concerns a command that is done, or may be.

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

// Commands that succeed, change nothing and are repeated: Cluster Autoscaler takes such a success for a change, and may
// then silently skip the rest of its loop for all groups.

/// The time for which a command without effect is remembered. Cluster Autoscaler's loops are seconds apart, and its
/// caches live for minutes.
const REMEMBERED_FOR: Duration = Duration::from_secs(15 * 60);

/// The last commands without effect of each group, by kind of command.
#[derive(Debug, Default)]
pub(super) struct Repeats(Mutex<HashMap<(GroupId, &'static str), Repeat>>);

/// A series of commands of one kind that changed nothing.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) struct Repeat {
    /// The number of commands.
    pub(super) times: u32,
    last: Instant,
}

impl Repeats {
    /// Records a command that succeeded. Returns the series if neither this command nor the previous ones changed
    /// anything.
    pub(super) fn note(&self, id: &GroupId, command: &'static str, has_effect: bool) -> Option<Repeat> {
        let now = Instant::now();
        let mut repeats = self.0.lock();
        repeats.retain(|_, repeat| now.duration_since(repeat.last) < REMEMBERED_FOR);
        let key = (id.clone(), command);
        if has_effect {
            repeats.remove(&key);
            return None;
        }
        let repeat = repeats.entry(key).or_insert(Repeat { times: 0, last: now });
        *repeat = Repeat { times: repeat.times.saturating_add(1), last: now };
        (repeat.times > 1).then_some(*repeat)
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

    #[tokio::test(start_paused = true)]
    async fn a_command_without_effect_is_noted_when_it_comes_again() {
        let repeats = Repeats::default();
        let times = |name: &str, has_effect| repeats.note(&group(name), "decrease", has_effect).map(|it| it.times);
        assert_eq!((times("a", false), times("b", false)), (None, None));
        assert_eq!((times("a", false), times("a", false)), (Some(2), Some(3)));
        assert_eq!(repeats.note(&group("a"), "delete", false), None, "another command");
        assert_eq!((times("a", true), times("a", false)), (None, None), "it had an effect meanwhile");
        tokio::time::advance(REMEMBERED_FOR).await;
        assert_eq!(times("b", false), None, "long ago");
        assert_eq!(repeats.0.lock().len(), 1, "what nobody asks for again is forgotten");
    }
}
