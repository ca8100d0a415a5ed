//! The tickets of one decision in the log.

use std::mem;

use crate::{Log, Types};

/// The tickets under which one decision may be in the log. No other decision uses them.
#[derive(Clone, Debug)]
pub(super) struct Tickets<T: Types> {
    current: T::Ticket,
    earlier: Vec<T::Ticket>,
}

impl<T: Types> Tickets<T> {
    pub(super) fn of(current: T::Ticket) -> Self {
        Self { current, earlier: Vec::new() }
    }

    pub(super) fn current(&self) -> &T::Ticket {
        &self.current
    }

    /// Returns true if the log has an entry with one of the tickets.
    pub(super) fn are_in(&self, log: &Log<T>) -> bool {
        log.has(&self.current) || self.earlier.iter().any(|ticket| log.has(ticket))
    }

    /// Replaces the ticket before the next write, after a write got no response. That write may have been applied and
    /// then reverted by another copy, which may still be removing the marks of its ticket. Or it may be applied later,
    /// after the next write was reverted and the log is as before.
    pub(super) fn renew(&mut self, ticket: T::Ticket) {
        self.earlier.push(mem::replace(&mut self.current, ticket));
    }
}
