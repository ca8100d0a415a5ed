//! The rule that decides on these writes, in a search through everything that can happen within small bounds.
//! `cargo test -p models` searches further.

use models::{bounds::Bounds, explore::explore, model::DeleteModel, variant::Variant, world::Budget};

const MOST_STATES: usize = 1_000_000;

#[test]
fn the_rule_of_deletion_holds_whatever_happens_within_small_bounds() {
    let budget = Budget { deletes: 2, crashes: 1, errors: 1, ..Budget::default() };
    let found = explore(&DeleteModel { rule: Variant::default(), bounds: Bounds::small(budget) }, MOST_STATES);
    assert!(
        found.broken.is_none(),
        "it breaks:\n{}",
        found.broken.map(|broken| broken.to_string()).unwrap_or_default()
    );
    assert!(found.is_complete && found.states > 1_000, "{} states", found.states);
}
