//! The work of filling and searching a log, counted by its uids: it must grow with the entries, and not with their
//! square.

use std::{
    cell::Cell,
    hash::{Hash, Hasher, RandomState},
    time::Duration,
};

use crate::{Entry, Log, Named, Types};

thread_local! {
    static WORK: Cell<usize> = const { Cell::new(0) };
}

/// A uid that counts how often it is hashed or compared.
#[derive(Clone, Debug)]
struct Counted(usize);

fn count() {
    WORK.set(WORK.get() + 1);
}

impl PartialEq for Counted {
    fn eq(&self, other: &Self) -> bool {
        count();
        self.0 == other.0
    }
}

impl Eq for Counted {}

impl Hash for Counted {
    fn hash<H: Hasher>(&self, state: &mut H) {
        count();
        self.0.hash(state);
    }
}

#[derive(Clone, Copy, Debug, Default, Eq, Hash, PartialEq)]
struct Costs;

impl Types for Costs {
    type Uid = Counted;
    type Name = usize;
    type Ticket = u8;
    type Time = Duration;
    type Hasher = RandomState;
    type LogError = u8;

    fn between(from: Duration, to: Duration) -> Duration {
        to.saturating_sub(from)
    }

    fn check(_: &Log<Self>, _: usize) -> Result<(), u8> {
        Ok(())
    }
}

fn entry(number: usize) -> Entry<Costs> {
    Entry::wanted(&Named { name: number, uid: Counted(number), never_joined: false }, &0, false)
}

/// Returns the hashes and comparisons of filling a log entry by entry, as an annotation is parsed, and of `then`.
fn work(entries: usize, then: impl FnOnce(Log<Costs>)) -> usize {
    WORK.set(0);
    let mut log = Log::<Costs>::default();
    for number in 0..entries {
        assert_eq!(log.try_push(entry(number)), Ok(()));
    }
    assert_eq!(log.try_push(entry(0)), Err(entry(0)));
    then(log);
    WORK.get()
}

#[test]
fn a_log_is_filled_and_searched_by_few_comparisons_for_each_entry() {
    let filled = |entries: usize| work(entries, drop);
    let searched = |entries: usize| {
        let is_found = |log: &Log<Costs>, number| log.get(&Counted(number)).is_some();
        work(entries, |log| (0..2 * entries).for_each(|number| assert_eq!(is_found(&log, number), number < entries)))
    };
    let thinned = |entries: usize| work(entries, |log| drop(log.without(|entry| entry.name.is_multiple_of(2))));
    let costs: [&dyn Fn(usize) -> usize; 3] = [&filled, &searched, &thinned];
    for cost in costs {
        let (few, many) = (cost(100), cost(1_000));
        assert!(few >= 100 && many <= 15 * few, "{few} for 100 entries, {many} for 1,000");
    }
}
