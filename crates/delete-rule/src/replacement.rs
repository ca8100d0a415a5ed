//! The time at which a Machine that never became a Node may be replaced at the min size. Machines are replaced one at a
//! time, at an interval that grows as long as none joins, because each failing Machine may cost money.

/// Nanoseconds since the Unix epoch, by a wall clock that may jump.
pub type WallTime = i128;

const SECOND: WallTime = 1_000_000_000;
/// The interval after the first replacement. It doubles with each further one until a Machine joins.
const FIRST_INTERVAL: WallTime = 300 * SECOND;
const LONGEST_INTERVAL: WallTime = 3_600 * SECOND;

/// The last replacement of a group.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Replaced<U> {
    /// The time at which it was decided.
    pub at: WallTime,
    /// The number of replacements in a row since a Machine last joined.
    pub count: u32,
    /// The uid of the replaced Machine.
    pub uid: U,
}

/// The decision about a Machine.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum Replacement<U> {
    /// Delete the Machine, after this replacement has been written.
    Begin(Replaced<U>),
    /// Delete the Machine: this replacement was already written.
    Continue(Replaced<U>),
    /// Do nothing before this time.
    Wait(WallTime),
}

impl<U> Replaced<U> {
    /// Returns the time from which the next replacement may follow.
    #[must_use]
    pub fn next(&self) -> WallTime {
        let doublings = self.count.saturating_sub(1).min(16);
        let interval = (FIRST_INTERVAL << doublings).min(LONGEST_INTERVAL);
        self.at.saturating_add(interval)
    }
}

/// Decides about the Machine of this uid. `joined` is the creation time of the youngest Machine of the group that has a
/// Node.
///
/// A replacement that lies further in the future than the longest interval is ignored, because a clock was wrong then.
#[must_use]
pub fn decide<U: Clone + PartialEq>(
    known: Option<&Replaced<U>>,
    uid: &U,
    joined: Option<WallTime>,
    now: WallTime,
) -> Replacement<U> {
    let known = known.filter(|known| known.at - now <= LONGEST_INTERVAL);
    let Some(known) = known else {
        return Replacement::Begin(Replaced { at: now, count: 1, uid: uid.clone() });
    };
    if known.uid == *uid {
        return Replacement::Continue(known.clone());
    }
    let has_joined = joined.is_some_and(|joined| joined > known.at);
    let known = Replaced { count: if has_joined { 0 } else { known.count }, ..known.clone() };
    if now < known.next() {
        return Replacement::Wait(known.next());
    }
    Replacement::Begin(Replaced { at: now, count: known.count.saturating_add(1), uid: uid.clone() })
}
