//! Limits the log lines whose number others decide: tenants, servers and clients. The first lines of a kind are logged
//! immediately, and those that follow within a minute are only counted.

use std::{
    collections::BTreeMap,
    time::{Duration, Instant},
};

/// The time in which lines of one kind are counted, from the first one.
pub const PAUSE: Duration = Duration::from_secs(60);

/// The lines of the last minute, by their kind.
#[derive(Debug)]
pub struct LogLimit<K> {
    at_once: usize,
    kinds: BTreeMap<K, Logged>,
}

/// The lines of one kind.
#[derive(Debug)]
struct Logged {
    since: Instant,
    lines: usize,
    /// The number of entries that weren't logged.
    more: u64,
}

impl<K: Clone + Ord> LogLimit<K> {
    /// Returns a limit that lets `at_once` lines of a kind through in a minute.
    #[must_use]
    pub fn new(at_once: usize) -> Self {
        Self { at_once, kinds: BTreeMap::new() }
    }

    /// Returns true if an entry of this number of lines has to be logged. It may take the lines beyond the limit, so
    /// that a long one is logged too. Otherwise counts it.
    pub fn allows(&mut self, kind: K, lines: usize, now: Instant) -> bool {
        let logged = self.kinds.entry(kind).or_insert(Logged { since: now, lines: 0, more: 0 });
        if now.saturating_duration_since(logged.since) >= PAUSE {
            (logged.since, logged.lines) = (now, 0);
        }
        let allowed = logged.lines < self.at_once;
        if allowed {
            logged.lines += lines;
        } else {
            logged.more += 1;
        }
        allowed
    }

    /// Forgets the kinds whose minute is over. Returns those with entries that weren't logged, and their number. It
    /// must be called periodically.
    pub fn over(&mut self, now: Instant) -> Vec<(K, u64)> {
        let mut over = Vec::new();
        self.kinds.retain(|kind, logged| {
            let is_over = now.saturating_duration_since(logged.since) >= PAUSE;
            if is_over && logged.more > 0 {
                over.push((kind.clone(), logged.more));
            }
            !is_over
        });
        over
    }

    /// Returns the time at which the first sum is due.
    #[must_use]
    pub fn due(&self) -> Option<Instant> {
        self.kinds.values().filter(|logged| logged.more > 0).map(|logged| logged.since + PAUSE).min()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    #[test]
    fn the_first_of_a_kind_are_logged_and_those_that_follow_are_summed_up() {
        let (mut limit, begun) = (LogLimit::new(2), Instant::now());
        let allowed = (0..1_000).filter(|_| limit.allows("a", 1, begun)).count();
        assert_eq!(allowed, 2);
        assert!(limit.allows("b", 1, begun), "another kind has its own limit");
        assert_eq!(limit.over(begun + SECOND * 59), []);
        assert_eq!(limit.due(), Some(begun + PAUSE));
        assert_eq!(limit.over(begun + PAUSE), [("a", 998)]);
        assert_eq!(limit.due(), None);
        assert!(limit.kinds.is_empty(), "nothing piles up");
    }

    #[test]
    fn a_new_minute_has_its_own_lines_and_loses_no_sum() {
        let (mut limit, begun) = (LogLimit::new(1), Instant::now());
        assert_eq!([0, 1, 2].map(|_| limit.allows("a", 1, begun)), [true, false, false]);
        assert_eq!([0, 1].map(|_| limit.allows("a", 1, begun + PAUSE)), [true, false]);
        assert_eq!(limit.over(begun + PAUSE * 2), [("a", 3)]);
    }

    #[test]
    fn a_long_entry_is_logged_as_a_whole_and_takes_its_lines() {
        let (mut limit, begun) = (LogLimit::new(30), Instant::now());
        assert_eq!([0, 1, 2].map(|_| limit.allows("a", 21, begun)), [true, true, false]);
    }
}
