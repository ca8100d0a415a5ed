//! Limits the log lines whose number others decide: tenants, servers and clients. The first lines of a kind are logged
//! immediately, and those that follow within a minute are only counted.

use std::{
    collections::BTreeMap,
    mem,
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
    pub fn new(at_once: usize) -> Self {
        Self { at_once, kinds: BTreeMap::new() }
    }

    /// Iterates over the kinds that are counted.
    pub fn kinds(&self) -> impl Iterator<Item = &K> {
        self.kinds.keys()
    }

    /// Returns true if this kind is counted already, or fewer kinds than `most` are.
    pub fn may_count(&self, kind: &K, most: usize) -> bool {
        self.kinds.len() < most || self.kinds.contains_key(kind)
    }

    /// Returns the number of earlier entries that weren't logged, if an entry of this number of lines has to be logged.
    /// It may take the lines beyond the limit, so that a long one is logged too. Otherwise counts it.
    pub fn allows(&mut self, kind: K, lines: usize, now: Instant) -> Option<u64> {
        let logged = self.kinds.entry(kind).or_insert(Logged { since: now, lines: 0, more: 0 });
        if now.saturating_duration_since(logged.since) >= PAUSE {
            (logged.since, logged.lines) = (now, 0);
        }
        if logged.lines >= self.at_once {
            logged.more += 1;
            return None;
        }
        logged.lines += lines;
        Some(mem::take(&mut logged.more))
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
        let allowed: Vec<_> = (0..1_000).filter_map(|_| limit.allows("a", 1, begun)).collect();
        assert_eq!(allowed, [0, 0]);
        assert_eq!(limit.allows("b", 1, begun), Some(0), "another kind has its own limit");
        assert_eq!(limit.over(begun + SECOND * 59), []);
        assert_eq!(limit.due(), Some(begun + PAUSE));
        assert_eq!(limit.over(begun + PAUSE), [("a", 998)]);
        assert_eq!(limit.due(), None);
        assert!(limit.kinds.is_empty(), "nothing piles up");
    }

    #[test]
    fn a_new_minute_has_its_own_lines_and_the_sum_of_the_last_one() {
        let (mut limit, begun) = (LogLimit::new(1), Instant::now());
        assert_eq!([0, 1, 2].map(|_| limit.allows("a", 1, begun)), [Some(0), None, None]);
        assert_eq!([0, 1].map(|_| limit.allows("a", 1, begun + PAUSE)), [Some(2), None]);
        assert_eq!(limit.over(begun + PAUSE * 2), [("a", 1)]);
    }

    /// Whatever the phase in which sums are taken.
    #[test]
    fn a_flood_without_end_has_a_sum_each_minute() {
        let (mut limit, begun) = (LogLimit::new(1), Instant::now());
        let (mut logged, mut summed) = (0, 0);
        for second in 0..600 {
            let now = begun + SECOND * second;
            if let Some(more) = limit.allows("a", 1, now) {
                (logged, summed) = (logged + 1, summed + more);
            }
            if second % 60 == 30 {
                summed += limit.over(now).iter().map(|(_, more)| more).sum::<u64>();
            }
        }
        assert_eq!((logged, summed), (10, 9 * 59));
    }

    #[test]
    fn a_long_entry_is_logged_as_a_whole_and_takes_its_lines() {
        let (mut limit, begun) = (LogLimit::new(30), Instant::now());
        assert_eq!([0, 1, 2].map(|_| limit.allows("a", 21, begun)), [Some(0), Some(0), None]);
    }

    #[test]
    fn a_full_limit_counts_the_kinds_that_it_has() {
        let (mut limit, now) = (LogLimit::new(1), Instant::now());
        assert!(limit.may_count(&"a", 1));
        limit.allows("a", 1, now);
        assert!(limit.may_count(&"a", 1) && !limit.may_count(&"b", 1));
    }
}
