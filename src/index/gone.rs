//! Groups that are gone and go on answering until the next Refresh. On a copy that nobody asks for one they are dropped
//! after a time, by the changes that come then.

use std::{collections::VecDeque, time::Duration};

use nodegroup::GroupId;
use tokio::time::Instant;

use super::{group::Group, live_state::LiveState};

/// A group that is gone answers for so long.
const ANSWERS_FOR: Duration = Duration::from_secs(15 * 60);
/// The number that one change drops at most, so that it costs no more where many have gone at once.
const DROPPED_AT_ONCE: usize = 4;

/// Groups that are gone, with since when, in order. One may be there again by now.
#[derive(Debug, Default)]
pub(super) struct Gone(VecDeque<(Instant, GroupId)>);

impl Gone {
    /// A group is gone. That it is told so again makes it no younger.
    pub(super) fn note(&mut self, id: &GroupId, group: &mut Group) {
        if group.gone_since.is_none() {
            let now = Instant::now();
            group.gone_since = Some(now);
            self.0.push_back((now, id.clone()));
        }
    }

    /// All of them have been dropped.
    pub(super) fn clear(&mut self) {
        self.0.clear();
    }

    /// The first that has been gone for long enough.
    fn take_old(&mut self) -> Option<(Instant, GroupId)> {
        let is_old = self.0.front().is_some_and(|(since, _)| since.elapsed() >= ANSWERS_FOR);
        if is_old { self.0.pop_front() } else { None }
    }

    /// True if nothing is left.
    #[cfg(test)]
    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

impl LiveState {
    /// Drops groups that have been gone for long.
    pub(super) fn drop_gone(&mut self) {
        for _ in 0..DROPPED_AT_ONCE {
            let Some((since, id)) = self.gone.take_old() else { return };
            if self.groups.get(&id).is_some_and(|group| group.gone_since == Some(since))
                && let Some(group) = self.groups.remove(&id)
            {
                let price = group.served.as_ref().and_then(|served| served.definition.price.as_ref());
                self.prices.replace(price, None);
            }
        }
    }
}
