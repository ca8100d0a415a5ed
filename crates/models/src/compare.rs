//! The end states of two rules within the same bounds, by what a user would notice.

use std::{
    fmt::{self, Display, Write as _},
    hash::BuildHasher as _,
};

use foldhash::fast::FixedState;

use crate::{
    bounds::Bounds,
    explore::{Ends, Model, collect},
    model::DeleteModel,
    simple::{Simple, SimpleModel},
    variant::Variant,
    world::{Life, Set, World},
};

/// The bounds of the table, a line each.
pub const TABLE: [&str; 29] = [
    "--nodes 3 --deletes 2",
    "--nodes 3 --deletes 2 --crashes 2",
    "--nodes 3 --deletes 2 --lost-answers 1",
    "--nodes 3 --deletes 2 --refusals 1",
    "--nodes 3 --deletes 2 --foreign-deletes 1",
    "--nodes 3 --deletes 2 --foreign-sizes 1",
    "--nodes 3 --deletes 2 --increases 1",
    "--nodes 3 --deletes 2 --errors 1",
    "--nodes 3 --deletes 2 --joins 1",
    "--nodes 3 --min 1 --deletes 2 --crashes 1 --refusals 1 --foreign-sizes 1",
    "--nodes 3 --min 2 --deletes 2",
    "--nodes 3 --deletes 2 --crashes 1 --errors 1 --foreign-deletes 1",
    "--nodes 3 --deletes 2 --batch 2 --lost-answers 1",
    "--nodes 3 --deletes 3 --crashes 1",
    "--nodes 3 --deletes 2 --join --refusals 1 --lost-answers 1",
    "--nodes 3 --deletes 2 --join --leaves 2",
    "--nodes 4 --deletes 2 --batch 2",
    "--nodes 3 --deletes 2 --one-by-one --crashes 1",
    "--nodes 3 --deletes 2 --misses-marks",
    "--bare --nodes 3 --deletes 2 --errors 1 --foreign-deletes 1",
    "--nodes 2 --pending 1 --deletes 2 --joins 1 --crashes 1",
    "--nodes 2 --pending 1 --deletes 1 --decreases 1 --joins 1",
    "--lagging-refs --nodes 2 --pending 1 --deletes 2 --joins 1",
    "--nodes 2 --missing 1 --deletes 1 --placeholders 1 --joins 1 --crashes 1",
    "--nodes 2 --missing 1 --deletes 1 --placeholders 1 --foreign-deletes 1",
    "--nodes 2 --missing 1 --deletes 1 --mixed 1 --joins 1",
    "--old 1 --nodes 2 --deletes 2 --joins 1",
    "--old 1 --nodes 2 --deletes 2 --joins 1 --copies-to-old",
    "--old 1 --nodes 2 --deletes 1 --foreign-deletes 1 --foreign-sizes 1",
];

/// What a user would notice, in the order of the table's columns.
pub const KINDS: [&str; 7] = [
    "unnamed Node went",
    "joined Node went",
    "replaced after OK",
    "replaced, no OK",
    "named Node stays",
    "two for one",
    "blocked",
];

const EVENTS: [&str; 15] = [
    "kill",
    "foreign delete",
    "foreign smaller size",
    "foreign greater size",
    "refusal",
    "join",
    "join of a new Machine",
    "end of a new Machine",
    "error",
    "lost answer",
    "increase",
    "decrease",
    "placeholder",
    "DeleteNodes",
    "late mark",
];

/// An end state: everything that tells it apart from others, whatever the rule.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
struct End {
    kinds: u8,
    events: [u8; EVENTS.len()],
    print: u64,
}

impl End {
    fn of(bounds: &Bounds, world: &World) -> Self {
        let (lives, there) = world.lives();
        let print = FixedState::with_seed(5).hash_one((lives, world.replicas, world.tally));
        Self { kinds: kinds(bounds, world, there), events: events(bounds, world), print }
    }

    fn has(&self, kind: usize) -> bool {
        self.kinds & (1 << kind) != 0
    }

    /// Returns true if nothing more has happened than in the other one.
    fn is_within(&self, other: &Self) -> bool {
        self.events.iter().zip(other.events).all(|(own, other)| *own <= other)
    }
}

fn kinds(bounds: &Bounds, world: &World, there: i8) -> u8 {
    let (tally, begin) = (world.tally, bounds.budget);
    // A named Machine may have gone for another client's smaller size.
    let fewer = i8::try_from(tally.fewer).unwrap_or(i8::MAX);
    let gone = Set::of(|machine| world.machines[machine].life == Life::Gone);
    let went = (tally.named & gone).without(tally.over);
    let lowered = tally.due - world.replicas;
    let spent = |all: u8, left: u8| i8::try_from(all - left).unwrap_or(i8::MAX);
    let asked = spent(begin.placeholders, world.budget.placeholders) + spent(begin.mixed, world.budget.mixed);
    let most =
        (tally.named & (gone | tally.ok)).len() + asked * bounds.batch + spent(begin.decreases, world.budget.decreases);
    let is_replaced_after_ok = lowered + fewer < (went & tally.ok).len();
    [
        tally.unnamed > tally.fewer,
        tally.joined > 0,
        is_replaced_after_ok,
        !is_replaced_after_ok && lowered + fewer < went.len(),
        !(tally.ok & tally.named).without(gone).is_empty(),
        lowered > most,
        there != world.replicas || !world.logged().is_empty(),
    ]
    .into_iter()
    .enumerate()
    .fold(0, |kinds, (kind, is)| kinds | u8::from(is) << kind)
}

fn events(bounds: &Bounds, world: &World) -> [u8; EVENTS.len()] {
    let (begin, left, tally) = (bounds.budget, world.budget, world.tally);
    let joins = begin.joins - left.joins;
    [
        begin.crashes - left.crashes,
        begin.foreign_deletes - left.foreign_deletes,
        tally.fewer,
        begin.foreign_sizes - left.foreign_sizes - tally.fewer,
        begin.refusals - left.refusals,
        joins,
        u8::from(tally.late_join),
        u8::from(tally.late_end),
        begin.errors - left.errors,
        begin.lost_answers - left.lost_answers,
        begin.increases - left.increases,
        begin.decreases - left.decreases,
        begin.placeholders + begin.mixed - left.placeholders - left.mixed,
        begin.deletes - left.deletes,
        begin.late_marks - left.late_marks,
    ]
}

/// The end states of a rule within bounds.
#[derive(Clone, Debug)]
pub struct Counted {
    /// The number of states that were searched.
    pub states: usize,
    /// True if all states were visited.
    pub is_complete: bool,
    /// The number of end states.
    pub ends: usize,
    /// How many of these are of each kind, in the order of [`KINDS`].
    pub kinds: [usize; KINDS.len()],
    /// What it takes at least for each kind, with a shortest trace.
    pub causes: String,
}

/// Counts the end states of a rule within bounds: of the rule with a log, or of the simple one.
#[must_use]
pub fn count(bounds: Bounds, simple: Option<Simple>, most_states: usize) -> Counted {
    let bounds = Bounds { tallies: true, ..bounds };
    let rest = DeleteModel { rule: Variant::default(), bounds };
    match simple {
        None => count_ends(&rest, &bounds, most_states),
        Some(simple) => count_ends(&SimpleModel { simple, rest }, &bounds, most_states),
    }
}

fn count_ends<M: Model<State = World>>(model: &M, bounds: &Bounds, most_states: usize) -> Counted {
    let all = collect(model, most_states, |world| End::of(bounds, world));
    let mut kinds = std::array::from_fn(|kind| all.ends.keys().filter(|end| end.has(kind)).count());
    // What goes on for ever is blocked.
    kinds[KINDS.len() - 1] += all.found.endless;
    let (states, is_complete, ends) = (all.found.states, all.found.is_complete, all.ends.len());
    Counted { states, is_complete, ends, kinds, causes: causes(model, &all) }
}

impl Display for Counted {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let rest = if self.is_complete { "" } else { " and more" };
        write!(formatter, "{}{rest} | {} |", self.states, self.ends)?;
        self.kinds.iter().try_for_each(|count| write!(formatter, " {count} |"))
    }
}

/// Describes the least that has to happen for each kind.
fn causes<M: Model<State = World>>(model: &M, all: &Ends<M, End>) -> String {
    let mut text = String::new();
    for (kind, name) in KINDS.iter().enumerate() {
        let of_kind: Vec<_> = all.ends.iter().filter(|(end, _)| end.has(kind)).collect();
        let is_least = |end: &End| of_kind.iter().all(|(other, _)| end.is_within(other) || !other.is_within(end));
        let mut told: Vec<[u8; EVENTS.len()]> = Vec::new();
        for (end, position) in of_kind.iter().filter(|(end, _)| is_least(end)) {
            if told.contains(&end.events) {
                continue;
            }
            told.push(end.events);
            let happened = end.events.iter().zip(EVENTS).filter(|(count, _)| **count > 0);
            let happened: Vec<_> = happened.map(|(count, event)| format!("{count} {event}")).collect();
            // Writing to a String never fails.
            let _ = writeln!(text, "\n{name}, with {}:", happened.join(", "));
            for (number, step) in all.trace(model, **position).iter().enumerate() {
                let _ = writeln!(text, "{:>3}. {step}", number + 1);
            }
        }
    }
    if let Some(broken) = &all.found.broken {
        let _ = writeln!(text, "\nwithout end:\n{broken}");
    }
    text
}
