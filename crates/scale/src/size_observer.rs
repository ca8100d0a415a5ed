//! Finds sizes that one manager puts back twice within an hour, after which increases are refused for half an hour
//! ([`Hold`]), and reports sizes for which no Machine is made, or whose Node is smaller than what was remembered. It runs
//! in a task of its own, which changes from the watches wake. It writes nothing but Events, and no command waits for it.

use std::{
    collections::HashMap,
    sync::{Arc, Weak},
    time::Duration,
};

use arcstr::ArcStr;
use rules::{GroupId, field_manager};
use tokio::{sync::watch, time::Instant};
use tokio_util::sync::CancellationToken;

use super::{
    metrics::UNKNOWN_MANAGER,
    turn::{Shared, Turn},
};
use index::{Hold, Index, Overwritten};

/// The time for which a size that was put back is remembered; a repetition within this time is reported.
const REMEMBERED_FOR: Duration = Duration::from_secs(3600);

/// The observations of all groups, for the lifetime of the task.
#[derive(Debug, Default)]
pub(super) struct Observed {
    put_back: HashMap<GroupId, PutBack>,
    /// The last reported reason that a group's Machines aren't created.
    held_back: HashMap<GroupId, String>,
}

/// The last size of a group that somebody has put back.
#[derive(Clone, Debug, Eq, PartialEq)]
struct PutBack {
    to: i32,
    manager: Option<ArcStr>,
    times: u32,
    at: Instant,
}

/// Observes until `ended`, or until `shared` is dropped.
pub(super) async fn run(
    shared: Weak<Shared>,
    index: Arc<Index>,
    mut changes: watch::Receiver<()>,
    ended: CancellationToken,
) {
    let mut observed = Observed::default();
    loop {
        let groups = index.take_written_sizes();
        if !groups.is_empty() {
            let Some(shared) = shared.upgrade() else { return };
            for id in groups {
                let turn = Turn::new(Arc::clone(&shared), id);
                // A fleet has a thousand of these tasks, which have nothing to do for most of the time.
                let done = ended.run_until_cancelled(Box::pin(observe(&turn, &mut observed))).await;
                if done.is_none() {
                    return;
                }
            }
        }
        tokio::select! {
            biased;
            () = ended.cancelled() => return,
            woken = changes.changed() => if woken.is_err() {
                return;
            },
        }
    }
}

async fn observe(turn: &Turn, observed: &mut Observed) {
    if let Some(overwritten) = turn.index().take_overwritten(&turn.id) {
        observe_overwritten(turn, overwritten, observed).await;
    }
    if let Some(smaller) = turn.index().take_smaller(&turn.id) {
        turn.report_smaller(&smaller.note);
    }
    match turn.index().held_back_own(&turn.id) {
        None => {
            observed.held_back.remove(&turn.id);
        }
        Some((size, why)) => {
            if observed.held_back.insert(turn.id.clone(), why.clone()).as_ref() != Some(&why) {
                turn.report_held_back(size, &why);
            }
        }
    }
}

/// Reports a size that somebody has put back. The object's managed fields name the manager; other copies of this
/// program are ignored.
async fn observe_overwritten(turn: &Turn, Overwritten { from, to }: Overwritten, observed: &mut Observed) {
    let manager = match turn.api().read_group(&turn.id).await {
        // The size has changed again, and that write has an observation of its own.
        Ok(seen) if seen.version.replicas != to => return,
        Ok(seen) => field_manager::manager(&seen.managed),
        Err(error) => {
            tracing::debug!(group = %turn.id, "can't read who has written the size: {error:?}");
            None
        }
    };
    if manager.as_deref().is_some_and(field_manager::is_own) {
        return;
    }
    let Some(times) = observed.note(&turn.id, to, manager.clone(), Instant::now()) else { return };
    // Cluster Autoscaler backs off a group whose increases are refused, and tries others. Writers that aren't named may
    // be several people.
    if let Some(manager) = &manager {
        turn.index().hold(&turn.id, Some(Hold::SizePutBack(manager.clone())));
    }
    let manager = manager.unwrap_or_else(|| UNKNOWN_MANAGER.into());
    turn.report_put_back((from, to), &manager, times);
}

impl Observed {
    /// Records a size that was put back. Returns the number of times if the same manager has put back the same size
    /// before: a person who changes a size once isn't reported.
    fn note(&mut self, id: &GroupId, to: i32, manager: Option<ArcStr>, now: Instant) -> Option<u32> {
        self.put_back.retain(|_, last| now.saturating_duration_since(last.at) < REMEMBERED_FOR);
        let before = self.put_back.get(id).filter(|last| last.to == to && last.manager == manager);
        let times = before.map_or(1, |last| last.times.saturating_add(1));
        self.put_back.insert(id.clone(), PutBack { to, manager, times, at: now });
        (times > 1).then_some(times)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_manager_that_puts_the_same_size_back_again_within_an_hour_is_counted() {
        let (mut observed, start) = (Observed::default(), Instant::now());
        let group = GroupId::parse("MachineDeployment/team-a/workers").unwrap();
        let mut note = |to, manager: &str, minutes: u64| {
            observed.note(&group, to, Some(manager.into()), start + Duration::from_secs(60 * minutes))
        };
        assert_eq!(note(3, "argocd-controller", 0), None);
        assert_eq!((note(3, "argocd-controller", 50), note(3, "argocd-controller", 100)), (Some(2), Some(3)));
        assert_eq!(note(4, "argocd-controller", 101), None, "another size");
        assert_eq!(note(4, "kubectl", 102), None, "somebody else");
        assert_eq!(note(4, "kubectl", 163), None, "long ago");
    }
}
