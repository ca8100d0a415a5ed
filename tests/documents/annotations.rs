//! Compares the annotations that the program reads with the documented ones.

use std::collections::{BTreeMap, BTreeSet};

use arcstr::ArcStr;
use rules::capi::{
    CAPACITY_ERROR_GRACE, CAPACITY_PREFIX, CLIENT_NOT_BEFORE, DEFER_UPGRADE, HOLD_UPGRADE_SEQUENCE, Keys,
    OWN_CAPACITY_PREFIX, PAUSED, REPLICAS_MANAGED_BY, SCALE_DOWN_WHILE_ROLLING_OUT,
};
use rules::{Problem, capacity, options};

use super::{first_cells, read};

/// Returns the known annotations of a rule, without their prefix, from its message about an unknown one.
fn known(problems: &[Problem]) -> Vec<String> {
    let [problem] = problems else { panic!("one problem was expected: {problems:?}") };
    let (_, list) = problem.message.split_once("known are ").unwrap();
    let (list, _) = list.split_once(';').unwrap();
    list.split(", ").map(str::to_owned).collect()
}

fn annotations_that_are_read() -> BTreeSet<String> {
    // Each key by name, so that a new one stops the build here until it is documented.
    let Keys {
        group: _,
        size_prefix: _, // of the two sizes
        min_size,
        max_size,
        options_prefix,
        delete_machine,
        machine,
        cluster_namespace,
        cluster_name: _, // a label
        owner_kind,
        owner_name,
        revision,
    } = Keys::default();
    let one = |key: String| BTreeMap::from([(ArcStr::from(key), ArcStr::from("x"))]);
    let (_, of_options) = options::overrides(&Keys::default(), &one(format!("{options_prefix}unknown")));
    let (_, of_capacity) = capacity::of_annotations(&one(format!("{CAPACITY_PREFIX}unknown")));
    let (_, of_own) = capacity::of_own_annotations(&one(format!("{OWN_CAPACITY_PREFIX}unknown")));
    let own = known(&of_own).into_iter().map(|name| format!("{OWN_CAPACITY_PREFIX}{name}"));
    let options = known(&of_options).into_iter().map(|name| format!("{options_prefix}{name}"));
    let capacity = known(&of_capacity).into_iter().map(|name| format!("{CAPACITY_PREFIX}{name}"));
    let fixed = [min_size, max_size, delete_machine, machine, cluster_namespace, owner_kind, owner_name, revision]
        .into_iter()
        .chain(
            [
                PAUSED,
                REPLICAS_MANAGED_BY,
                CAPACITY_ERROR_GRACE,
                SCALE_DOWN_WHILE_ROLLING_OUT,
                CLIENT_NOT_BEFORE,
                DEFER_UPGRADE,
                HOLD_UPGRADE_SEQUENCE,
            ]
            .map(str::to_owned),
        );
    fixed.chain(options).chain(capacity).chain(own).collect()
}

#[test]
fn every_annotation_is_documented_and_every_documented_annotation_is_read() {
    assert_eq!(first_cells(&read("docs/reference/annotations.md")), annotations_that_are_read());
}

/// Returns the annotations that each row of the table of bounds names, where `…` ends a prefix.
fn bounds() -> Vec<Vec<String>> {
    let document = read("SECURITY.md");
    let (_, section) = document.split_once("\n## Limits on object contents\n").unwrap();
    let rows = section.lines().filter_map(|line| line.strip_prefix("| ")?.strip_suffix(" |")).skip(1);
    let code = |cell: &str| cell.split('`').skip(1).step_by(2).map(str::to_owned).collect();
    rows.map(|row| code(row.split(" | ").next().unwrap())).collect()
}

#[test]
fn every_annotation_that_is_read_has_a_bound_in_one_row_of_the_table() {
    let named: Vec<_> = bounds().into_iter().flatten().collect();
    let annotations = annotations_that_are_read();
    let is_of = |key: &str, name: &str| name.strip_suffix('…').map_or(key == name, |prefix| key.starts_with(prefix));
    for key in &annotations {
        let rows = named.iter().filter(|name| is_of(key, name)).count();
        assert_eq!(rows, 1, "{key} is named by {rows} rows of SECURITY.md");
    }
    for name in named {
        assert!(annotations.iter().any(|key| is_of(key, &name)), "{name} is read nowhere");
    }
}
