//! The tickets of one decision in the log.

use std::mem;

use crate::{Log, Types};

/// The tickets under which one decision may be in the log. Nobody else draws them.
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

    /// Returns true if a write under one of the tickets was applied and still stands.
    pub(super) fn are_in(&self, log: &Log<T>) -> bool {
        log.has(&self.current) || self.earlier.iter().any(|ticket| log.has(ticket))
    }

    /// Draws a new ticket for the next write, after one got no response. That write may have been applied and taken
    /// back by another copy, which may still be removing the marks of its ticket; or it may be applied later, when the
    /// next one has been taken back and the log is as it was.
    pub(super) fn renew(&mut self, ticket: T::Ticket) {
        self.earlier.push(mem::replace(&mut self.current, ticket));
    }
}
