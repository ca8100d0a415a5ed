//! Logs the progress of the first lists at the start, a line per cache from time to time. It must never delay the lists,
//! and ends when all of them are complete.

use std::{
    collections::BTreeMap,
    time::{Duration, Instant},
};

use tracing::info;

use shared_informer::Status;

/// The interval at which the caches are polled.
const POLL_INTERVAL: Duration = Duration::from_millis(200);
/// The delay before the first log line of a cache. The time between two lines doubles.
const FIRST_LINE: Duration = Duration::from_secs(2);
const LONGEST_PAUSE: Duration = Duration::from_secs(60);

/// Each cache's status and its cluster's name.
pub(super) type Caches = Vec<(&'static str, Status)>;

/// Logs the progress until `poll` reports that no caches will be added and all of them are complete.
pub(super) async fn follow(mut poll: impl FnMut() -> (Caches, bool)) {
    let mut progress = Progress::default();
    let mut ticks = tokio::time::interval(POLL_INTERVAL);
    loop {
        ticks.tick().await;
        let (caches, all_there) = poll();
        // This loop doesn't wait for a broken cache. If a check needs the cache, `all_there` stays false.
        let complete = caches.iter().all(|(_, status)| status.synced || status.reason.is_some());
        progress.update(caches, Instant::now());
        if all_there && complete {
            return;
        }
    }
}

/// What was logged of each cache, by its cluster, resource, namespaces and selectors.
#[derive(Default)]
struct Progress(BTreeMap<(&'static str, String, String, String), Logged>);

struct Logged {
    begun: Instant,
    next_line: Instant,
    complete: bool,
}

impl Progress {
    fn update(&mut self, caches: Caches, now: Instant) {
        for (cluster, status) in caches {
            let Status { resource, namespaces, selectors, objects, remaining, reason, synced, .. } = status;
            let name = (cluster, resource.clone(), namespaces.clone(), selectors);
            let first = Logged { begun: now, next_line: now + FIRST_LINE, complete: false };
            let logged = self.0.entry(name).or_insert(first);
            if logged.complete {
                continue;
            }
            let elapsed = now.saturating_duration_since(logged.begun);
            let seconds = elapsed.as_secs();
            if synced {
                logged.complete = true;
                info!(cluster, resource, namespaces, objects, seconds, "the first list is complete");
            } else if now >= logged.next_line {
                logged.next_line = now + elapsed.min(LONGEST_PAUSE);
                info!(cluster, resource, namespaces, objects, remaining, seconds, reason, "the first list is coming");
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use testkit::CapturedLog;

    fn machines(objects: usize, remaining: Option<u64>, synced: bool) -> Caches {
        let status = Status {
            resource: "machines.v1beta2.cluster.x-k8s.io".to_owned(),
            namespaces: "team-a".to_owned(),
            synced,
            objects,
            remaining,
            ..Status::default()
        };
        vec![("management", status)]
    }

    /// Returns the lines that are logged when the cache is polled after these numbers of seconds.
    fn said(polls: &[(u64, Caches)]) -> Vec<String> {
        let begun = Instant::now();
        let text = CapturedLog::of(|| {
            let mut progress = Progress::default();
            for (seconds, caches) in polls {
                progress.update(caches.clone(), begun + Duration::from_secs(*seconds));
            }
        });
        text.lines().map(|line| line.split_once("progress: ").unwrap().1.to_owned()).collect()
    }

    const OF: &str = "cluster=\"management\" resource=\"machines.v1beta2.cluster.x-k8s.io\" namespaces=\"team-a\"";

    #[test]
    fn a_list_that_takes_long_is_reported_in_growing_pauses_and_at_its_end() {
        let polls: Vec<_> = (0..=10).map(|seconds| (seconds, machines(100, None, false))).collect();
        let lines = said(&[polls, vec![(11, machines(200, None, true)), (12, machines(201, None, true))]].concat());
        let coming = |seconds: u32| format!("the first list is coming {OF} objects=100 seconds={seconds}");
        let complete = format!("the first list is complete {OF} objects=200 seconds=11");
        assert_eq!(lines, [coming(2), coming(4), coming(8), complete]);
    }

    #[test]
    fn a_quick_list_is_one_line() {
        let lines = said(&[(0, machines(0, None, false)), (1, machines(3, None, true))]);
        assert_eq!(lines, [format!("the first list is complete {OF} objects=3 seconds=1")]);
    }

    #[test]
    fn pages_say_how_much_is_still_to_come() {
        let lines = said(&[(0, machines(0, None, false)), (5, machines(500, Some(1500), false))]);
        assert_eq!(lines, [format!("the first list is coming {OF} objects=500 remaining=1500 seconds=5")]);
    }
}
