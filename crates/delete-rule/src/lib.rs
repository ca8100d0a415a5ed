//! The rule of deletion: decisions about which Machines are logged, marked, counted and deleted, as pure functions of
//! the observed state. docs/design/delete-rule.md has the reason for each step. The program and the model run the same
//! decisions, which are generic over identities and over the steps that a test leaves out.
//!
//! It must never make a call, read a clock or hold state of its own.
#![forbid(unsafe_code)]

mod accept;
mod era;
mod fate;
mod finish;
mod followed;
mod log;
mod lower;
mod machines;
mod marking;
mod named;
pub mod naming;
mod placeholders;
mod policy;
mod reconcile;
pub mod replacement;
pub mod size;
pub mod steps;
#[cfg(test)]
mod tests;

use std::{
    fmt::Debug,
    hash::{BuildHasher, Hash},
    time::Duration,
};

pub use self::{
    accept::{Acceptance, Accepted, GroupState, Refusal, Request, given_up},
    era::{Era, LogState, Version},
    fate::{Fate, SizedBy, Spec},
    finish::{Finish, LEFT_TO_PROVIDER, LeftSince, Member},
    followed::{Followed, Kind, Source},
    log::{Entry, Log, MOST_ENTRIES, Phase},
    lower::Lowering,
    machines::GroupMachines,
    marking::Marking,
    named::{Life, Named},
    placeholders::{Placeholders, Shrinking},
    policy::{Complete, Forgets, Policy},
    reconcile::{Reconcile, ReconcileCall},
    size::{Bounds, SizeError},
};

/// The types that the user of the rule provides.
pub trait Types: Copy + Debug + Default + Eq + Hash + 'static {
    /// The identity of a Machine or of a group's object, which is never reused.
    type Uid: Clone + Debug + Eq + Hash;
    /// The name of a Machine.
    type Name: Clone + Debug + Eq + Hash;
    /// The identity of an acceptance: unique, and shared by all entries of one write.
    type Ticket: Clone + Debug + Eq + Hash;
    /// A moment on a monotonic clock.
    type Time: Copy + Debug + Eq;
    /// The hasher of the sets and maps by uid.
    type Hasher: BuildHasher + Clone + Default;
    /// The reason why a log can't be written.
    type LogError: Clone + Debug + Eq;

    /// Returns the time from `from` to `to`, or 0 if `to` is earlier.
    fn between(from: Self::Time, to: Self::Time) -> Duration;

    /// Checks that a log can be written. Its first `checked` entries have been checked before.
    ///
    /// # Errors
    /// Fails if the log is too large.
    fn check(log: &Log<Self>, checked: usize) -> Result<(), Self::LogError>;
}

/// The rule of deletion, with the steps that a policy includes.
#[derive(Clone, Copy, Debug, Default)]
pub struct Rule<P = Complete>(pub P);

/// The rule that the program follows.
pub const RULE: Rule = Rule(Complete);

/// A set of Machines, by uid.
pub type Set<T> = std::collections::HashSet<<T as Types>::Uid, <T as Types>::Hasher>;

/// A map keyed by Machine uid.
pub type Map<T, V> = std::collections::HashMap<<T as Types>::Uid, V, <T as Types>::Hasher>;

fn as_i64(count: usize) -> i64 {
    i64::try_from(count).unwrap_or(i64::MAX)
}
