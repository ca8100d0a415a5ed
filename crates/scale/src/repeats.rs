//! Commands that succeed, change nothing and are repeated: Cluster Autoscaler takes such a success for a change, and may
//! then silently skip the rest of its loop for all groups.

use std::{collections::HashMap, time::Duration};

use parking_lot::Mutex;
use rules::GroupId;
use tokio::time::Instant;

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
