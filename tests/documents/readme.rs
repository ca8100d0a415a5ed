//! Checks the commands, flags and rights that the README names.

use std::collections::BTreeSet;

use serde_json::Value;

use super::{read, yaml};

#[test]
fn the_readme_names_flags_that_there_are() {
    let flags = read("docs/reference/flags.md");
    let readme = read("README.md");
    // Flags of cargo, Cluster Autoscaler, helm and the examples.
    let others = ["--release", "--profile", "--example", "--test", "--address", "--nodes"];
    let autoscaler = [
        "--cloud-provider",
        "--cloud-config",
        "--expander",
        "--startup-taint",
        "--scale-down-enabled",
        "--leader-elect-resource-name",
        "--status-config-map-name",
    ];
    let helm = ["--set"];
    let sandbox = ["--once", "--manifests", "--groups", "--machines", "--api-only"];
    let others = [&others[..], &autoscaler[..], &helm[..], &sandbox[..]].concat();
    let words = readme.split(|c: char| !c.is_ascii_alphanumeric() && c != '-');
    let named = words.filter(|word| word.strip_prefix("--").is_some_and(|rest| rest.starts_with(char::is_alphabetic)));
    for flag in named.filter(|flag| !others.contains(flag)) {
        let known = [format!("| `{flag}"), format!(", {flag}")].iter().any(|known| flags.contains(known));
        assert!(known, "{flag} is no flag of serve or groups");
    }
}

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
