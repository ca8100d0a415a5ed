//! Checks the rights that the README names.

use std::collections::BTreeSet;

use serde_json::Value;

use super::{read, yaml};

/// Returns the resources with their verbs, of all rules of a role.
fn rights(role: &Value) -> BTreeSet<(String, String)> {
    let mut rights = BTreeSet::new();
    for rule in role["rules"].as_array().unwrap() {
        let texts = |key: &str| rule[key].as_array().unwrap().iter().map(|text| text.as_str().unwrap().to_owned());
        for resource in texts("resources") {
            rights.extend(texts("verbs").map(|verb| (resource.clone(), verb)));
        }
    }
    rights
}

#[test]
fn the_rights_are_those_of_the_readme() {
    let objects = yaml("examples/rbac.yaml");
    let granted: BTreeSet<_> = objects.iter().filter(|object| object["rules"].is_array()).flat_map(rights).collect();

    // Rows: cluster, API group, resources, verbs, purpose.
    let readme = read("README.md");
    let (_, section) = readme.split_once("## RBAC").unwrap();
    let rows = section.lines().filter(|line| line.starts_with("| management |") || line.starts_with("| workload |"));
    let mut documented = BTreeSet::new();
    for row in rows {
        let cells: Vec<_> = row.split('|').map(str::trim).collect();
        let named: Vec<_> = cells[3].split('`').skip(1).step_by(2).filter(|name| !name.starts_with('<')).collect();
        // The kinds of infrastructure templates vary.
        let resources = if named.is_empty() { vec!["*"] } else { named };
        for resource in resources {
            documented.extend(cells[4].split(", ").map(|verb| (resource.to_owned(), verb.to_owned())));
        }
    }
    assert_eq!(granted, documented);
}
