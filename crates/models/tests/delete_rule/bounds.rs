//! Small bounds, and the search within them.

use models::{
    bounds::Bounds,
    explore::{Broken, explore},
    model::DeleteModel,
    variant::Variant,
    world::Budget,
};

const MOST_STATES: usize = 3_000_000;

pub(crate) fn bounds(budget: Budget) -> Bounds {
    Bounds::small(budget)
}

/// Parses a budget of events, a letter each:
/// d a DeleteNodes, i an increase, s a decrease of the target size, c a crash, f a foreign delete, z a foreign size,
/// r a refusal, j a Machine that gets its Node, e a reconcile that ends with an error, l a mark that is applied late,
/// p a DeleteNodes of placeholders, a a write of the group whose response is lost, y a choice of a MachinePool's
/// provider against the marks, m a DeleteNodes of both Machines and placeholders, v a caller that leaves.
pub(crate) fn budget(letters: &str) -> Budget {
    let count = |letter| u8::try_from(letters.matches(letter).count()).unwrap_or(u8::MAX);
    Budget {
        deletes: count('d'),
        increases: count('i'),
        decreases: count('s'),
        crashes: count('c'),
        foreign_deletes: count('f'),
        foreign_sizes: count('z'),
        refusals: count('r'),
        joins: count('j'),
        errors: count('e'),
        late_marks: count('l'),
        placeholders: count('p'),
        lost_answers: count('a'),
        strays: count('y'),
        mixed: count('m'),
        leaves: count('v'),
    }
}

pub(crate) fn broken(rule: Variant, bounds: Bounds) -> Option<Broken> {
    let found = explore(&DeleteModel { rule, bounds }, MOST_STATES);
    println!("{bounds:?}\n{} states, {} steps, {} at rest", found.states, found.steps, found.at_rest);
    assert!(found.broken.is_some() || found.is_complete, "more than {MOST_STATES} states: choose smaller bounds");
    assert_eq!(found.cut, 0, "no step may need more Machines than the model has");
    found.broken
}

/// Asserts that a rule holds within bounds.
pub(crate) fn holds(rule: Variant, bounds: Bounds) {
    let broken = broken(rule, bounds);
    assert!(broken.is_none(), "it breaks:\n{}", broken.map(|broken| broken.to_string()).unwrap_or_default());
}
