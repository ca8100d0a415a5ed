//! The callers that rely on the present pins of the membership. A caller pins with Refresh, at the beginning of its
//! loop. One that arrives in the middle of a loop, from another replica of the program or before its first Refresh, would
//! find pins that may be days old, so it pins anew. This must never happen during another caller's loop: Cluster
//! Autoscaler dereferences nil for a group that its last NodeGroups answer lacks.

use std::time::{Duration, Instant};

use parking_lot::{Mutex, MutexGuard};

use crate::listen::{Connection, KnownConnection};
use index::LONGEST_LOOP;

/// The time for which a caller relies on its own pins, far longer than a loop. Without this limit, a caller behind a
/// proxy that keeps a connection to each replica could use pins that are days old.
const LAST_VISIT: Duration = Duration::from_secs(60 * 60);

/// The callers that have pinned.
#[derive(Debug, Default)]
pub(super) struct Pins {
    callers: Mutex<Vec<Caller>>,
    /// Held while a caller pins: several threads may answer the callers of one Cluster.
    turn: Mutex<()>,
}

#[derive(Debug)]
struct Caller {
    connection: KnownConnection,
    /// The time of its last pin.
    at: Instant,
}

/// A caller that has pinned, relative to the caller of the present request.
#[derive(Clone, Copy, Debug)]
struct PinState {
    /// True if it is the caller of the request.
    is_caller: bool,
    /// True if its connection is open.
    is_open: bool,
    /// The time since its last pin.
    age: Duration,
}

/// Returns true if no caller relies on the pins: the present one hasn't pinned recently on its connection, and no other
/// one that has pinned can still be in its loop.
fn are_unused(known: impl IntoIterator<Item = PinState>) -> bool {
    let is_used = |known: PinState| match (known.is_caller, known.is_open) {
        (true, _) => known.age < LAST_VISIT,
        (false, is_open) => is_open && known.age < LONGEST_LOOP,
    };
    !known.into_iter().any(is_used)
}

impl Pins {
    /// Waits for the turn to pin. It has to be held from the question if a caller must pin to the record that it has.
    pub(super) fn lock(&self) -> MutexGuard<'_, ()> {
        self.turn.lock()
    }

    /// Records a caller that has pinned.
    pub(super) fn record(&self, connection: Option<&Connection>, now: Instant) {
        let Some(connection) = connection else { return };
        let mut callers = self.callers.lock();
        callers.retain(|caller| caller.connection.is_open() && !caller.connection.is(connection));
        callers.push(Caller { connection: connection.known(), at: now });
    }

    /// Returns true if a caller has to pin anew although it sent no Refresh. Returns false without a connection, since
    /// callers are recognized by it.
    pub(super) fn must_pin(&self, connection: Option<&Connection>, now: Instant) -> bool {
        let Some(connection) = connection else { return false };
        let callers = self.callers.lock();
        are_unused(callers.iter().map(|caller| PinState {
            is_caller: caller.connection.is(connection),
            is_open: caller.connection.is_open(),
            age: now.saturating_duration_since(caller.at),
        }))
    }
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;
    use crate::listen::Client;

    const MINUTE: Duration = Duration::from_secs(60);

    fn known(is_caller: bool, is_open: bool, minutes: u32) -> PinState {
        PinState { is_caller, is_open, age: MINUTE * minutes }
    }

    #[rstest]
    #[case::nobody_has_pinned(&[], true)]
    #[case::its_own(&[known(true, true, 0)], false)]
    #[case::its_own_of_a_long_loop(&[known(true, true, 20)], false)]
    #[case::its_own_of_its_last_visit(&[known(true, true, 60)], true)]
    #[case::its_own_of_its_last_visit_while_another_is_in_its_loop(&[known(true, true, 60), known(false, true, 1)], false)]
    #[case::of_a_caller_in_its_loop(&[known(false, true, 5)], false)]
    #[case::of_a_caller_that_has_left(&[known(false, false, 0)], true)]
    #[case::of_a_caller_that_has_been_silent(&[known(false, true, 20)], true)]
    #[case::of_several_of_which_one_is_in_its_loop(&[known(false, false, 0), known(false, true, 1)], false)]
    fn unused_pins_are_replaced(#[case] callers: &[PinState], #[case] expected: bool) {
        assert_eq!(are_unused(callers.iter().copied()), expected);
    }

    #[test]
    fn a_connection_is_known_while_it_is_open() {
        let (pins, now) = (Pins::default(), Instant::now());
        let connection = || Connection::of(Client { name: "client".into(), ..Client::default() });
        let (first, second) = (connection(), connection());
        assert!(pins.must_pin(Some(&first), now));
        pins.record(Some(&first), now);
        pins.record(Some(&first), now);
        assert_eq!(pins.callers.lock().len(), 1, "once for each connection");
        assert!(!pins.must_pin(Some(&first), now));
        assert!(!pins.must_pin(Some(&second), now), "the first may be in its loop");
        drop(first);
        assert!(pins.must_pin(Some(&second), now));
        pins.record(Some(&second), now);
        assert_eq!(pins.callers.lock().len(), 1, "closed ones are forgotten");
    }
}
