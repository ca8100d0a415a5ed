//! The tickets under which one decision may stand in the log.

use std::mem;

use crate::{Log, Types};

/// The tickets under which one decision may stand in the log. Nobody else draws them.
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

    /// Returns true if a write under one of them was done and stands.
    pub(super) fn are_in(&self, log: &Log<T>) -> bool {
        log.has(&self.current) || self.earlier.iter().any(|ticket| log.has(ticket))
    }

    /// Takes another for the next write, once one had no answer. That one may have been done and taken back by another copy,
    /// which may be taking marks of its ticket off by now; or it arrives yet, when the next has been taken back and the log
    /// is again as it was.
    pub(super) fn renew(&mut self, ticket: T::Ticket) {
        self.earlier.push(mem::replace(&mut self.current, ticket));
    }
}
