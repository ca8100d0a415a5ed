//! The messages that wait for one destination. Their number and size are bounded: the oldest ones are dropped,
//! counted, and reported with the next message.

use std::collections::VecDeque;

use parking_lot::Mutex;
use tokio::sync::Notify;

/// The limits of a destination's queue.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Limits {
    /// The number of changes.
    pub changes: usize,
    /// The number of bytes of rendered changes.
    pub bytes: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Self { changes: 1000, bytes: 8 << 20 }
    }
}

/// The number of changes that matched a rule, by outcome.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct Counts {
    /// Changes that matched.
    pub offered: u64,
    /// Changes that arrived.
    pub sent: u64,
    /// Messages that arrived, of one or more changes each.
    pub messages: u64,
    /// Changes dropped from a full queue.
    pub dropped: u64,
    /// Changes that were given up: refused for good, or failed for too long.
    pub failed: u64,
    /// Changes that are waiting or being sent.
    pub queued: u64,
}

/// The changes that wait for one destination.
pub(super) struct Queue {
    limits: Limits,
    waiting: Mutex<Waiting>,
    pub(super) filled: Notify,
}

#[derive(Default)]
struct Waiting {
    messages: VecDeque<String>,
    bytes: usize,
    /// The number of changes dropped since the last batch was taken.
    lost: u64,
    counts: Counts,
}

/// Changes that are sent in one message.
#[derive(Debug)]
pub(super) struct Batch {
    pub(super) changes: Vec<String>,
    /// The number of changes dropped before these.
    pub(super) lost: u64,
}

impl Queue {
    pub(super) fn new(limits: Limits) -> Self {
        Self { limits, waiting: Mutex::default(), filled: Notify::new() }
    }

    /// Queues a change. Returns true if the queue has just begun to overflow.
    pub(super) fn push(&self, change: String) -> bool {
        let mut waiting = self.waiting.lock();
        let before = waiting.lost;
        waiting.bytes += change.len();
        waiting.messages.push_back(change);
        waiting.counts.offered += 1;
        waiting.counts.queued += 1;
        while waiting.messages.len() > self.limits.changes.max(1)
            || (waiting.bytes > self.limits.bytes && waiting.messages.len() > 1)
        {
            if let Some(oldest) = waiting.messages.pop_front() {
                waiting.bytes -= oldest.len();
            }
            waiting.lost += 1;
            waiting.counts.dropped += 1;
            waiting.counts.queued -= 1;
        }
        self.filled.notify_one();
        before == 0 && waiting.lost > 0
    }

    pub(super) fn len(&self) -> usize {
        self.waiting.lock().messages.len()
    }

    /// Takes the oldest changes, at least one, within these limits; `None` if the queue is empty.
    pub(super) fn take(&self, limits: Limits) -> Option<Batch> {
        let mut waiting = self.waiting.lock();
        let mut changes: Vec<String> = Vec::new();
        let mut bytes = 0;
        while let Some(next) = waiting.messages.front() {
            let full = changes.len() >= limits.changes || bytes + next.len() > limits.bytes;
            if full && !changes.is_empty() {
                break;
            }
            bytes += next.len();
            changes.extend(waiting.messages.pop_front());
        }
        waiting.bytes -= bytes;
        let lost = std::mem::take(&mut waiting.lost);
        if changes.is_empty() {
            waiting.lost = lost;
            return None;
        }
        Some(Batch { changes, lost })
    }

    pub(super) fn sent(&self, changes: usize) {
        let counts = &mut self.waiting.lock().counts;
        counts.sent += changes as u64;
        counts.messages += 1;
        counts.queued -= changes as u64;
    }

    /// Records that a batch was given up. Its changes, and those lost before it, are reported with the next message.
    pub(super) fn failed(&self, batch: &Batch) {
        let waiting = &mut *self.waiting.lock();
        let changes = batch.changes.len() as u64;
        waiting.counts.failed += changes;
        waiting.counts.queued -= changes;
        waiting.lost += batch.lost + changes;
    }

    pub(super) fn counts(&self) -> Counts {
        self.waiting.lock().counts
    }
}
