//! The backoff of groups that failed to grow.

use std::{collections::BTreeMap, time::Duration};

use tokio::time::Instant;

use super::Backoff;

/// A group that failed.
#[derive(Clone, Copy, Debug)]
struct Entry {
    duration: Duration,
    until: Instant,
    failed: Instant,
}

/// The groups that failed recently, by id.
#[derive(Debug, Default)]
pub(crate) struct BackedOff(BTreeMap<String, Entry>);

impl BackedOff {
    /// Records a failure. A failure during the backoff keeps its duration; a later one doubles it.
    pub(crate) fn fail(&mut self, group: &str, now: Instant, times: Backoff) {
        let duration = match self.0.get(group) {
            Some(known) if known.until < now => (known.duration * 2).min(times.max),
            Some(known) => known.duration,
            None => times.initial,
        };
        self.0.insert(group.to_owned(), Entry { duration, until: now + duration, failed: now });
    }

    /// Returns true if a group is backed off and must not be increased.
    pub(crate) fn has(&self, group: &str, now: Instant) -> bool {
        self.0.get(group).is_some_and(|entry| entry.until >= now)
    }

    /// Forgets groups whose last failure is longer ago than the reset time.
    pub(crate) fn forget(&mut self, now: Instant, times: Backoff) {
        self.0.retain(|_, entry| entry.failed + times.reset >= now);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TIMES: Backoff = Backoff {
        initial: Duration::from_secs(300),
        max: Duration::from_secs(1800),
        reset: Duration::from_secs(3 * 3600),
    };

    #[test]
    fn failures_double_it_up_to_a_limit_and_times_without_any_end_it() {
        let start = Instant::now();
        let at = |seconds| start + Duration::from_secs(seconds);
        let mut groups = BackedOff::default();
        groups.fail("a", at(0), TIMES);
        // A second increase that was under way at the same time fails too.
        groups.fail("a", at(10), TIMES);
        assert!(groups.has("a", at(310)));
        assert!(!groups.has("a", at(311)));
        assert!(!groups.has("b", at(0)));
        let mut now = 311;
        for duration in [600, 1200, 1800, 1800] {
            groups.fail("a", at(now), TIMES);
            assert!(groups.has("a", at(now + duration)));
            now += duration + 1;
            assert!(!groups.has("a", at(now)), "longer than {duration}");
        }
        groups.forget(at(now), TIMES);
        groups.fail("a", at(now), TIMES);
        assert!(groups.has("a", at(now + 1800)));
        now += 3 * 3600 + 1;
        groups.forget(at(now), TIMES);
        groups.fail("a", at(now), TIMES);
        assert!(!groups.has("a", at(now + 301)));
    }
}
