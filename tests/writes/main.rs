//! Writes through the whole program on a sandbox: the number of their requests, and what is left when a process is killed
//! in the middle of them.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod kill;
mod proxied;
mod requests;
mod world;

use std::env;

/// Returns the seeds of rounds: a single one if a variable has it, new ones if a variable has their number, and
/// otherwise the same in every run. A round that fails prints its seed.
fn seeds(rounds: &str, single: &str, fixed: u64) -> Vec<u64> {
    let number = |name: &str| {
        let text = env::var(name).ok()?;
        Some(text.parse::<u64>().unwrap_or_else(|error| panic!("{name}={text}: {error}")))
    };
    match (number(single), number(rounds)) {
        (Some(seed), _) => vec![seed],
        (None, Some(rounds)) => (0..rounds).map(|_| fastrand::u64(..)).collect(),
        (None, None) => (0..fixed).collect(),
    }
}
