//! Checks the rights of the README, and those of the example of kubeconfigs with rights on Nodes alone, against what the
//! program asks for.

use std::collections::BTreeSet;

use capi_autoscaler_provider::cli::needed_rights::{Needs, Side};
use connect::{ClusterRef, SecretName};
use serde_json::{Value, json};

use super::{read, yaml};

const WORKLOAD: &str = "examples/fleet/nodes-workload.yaml";
const SECRET: &str = "examples/fleet/nodes-secret.yaml";

/// Returns the texts of a list.
fn texts<'a>(object: &'a Value, key: &str) -> Vec<&'a str> {
    object[key].as_array().unwrap().iter().map(|text| text.as_str().unwrap()).collect()
}

/// Returns group, resource and verb of each right that a role grants.
fn granted(role: &Value) -> BTreeSet<[String; 3]> {
    let mut granted = BTreeSet::new();
    for rule in role["rules"].as_array().unwrap() {
        for group in texts(rule, "apiGroups") {
            for resource in texts(rule, "resources") {
                let rights = texts(rule, "verbs").into_iter().map(|verb| [group, resource, verb].map(str::to_owned));
                granted.extend(rights);
            }
        }
    }
    granted
}

#[test]
fn the_rights_are_those_of_the_readme() {
    let objects = yaml("examples/rbac.yaml");
    let granted = objects.iter().filter(|object| object["rules"].is_array()).flat_map(granted);
    let granted: BTreeSet<_> = granted.map(|[_, resource, verb]| (resource, verb)).collect();

    // Rows: cluster, API group, resources, verbs.
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

#[test]
fn the_account_has_the_rights_on_nodes_that_the_program_asks_for() {
    let objects = yaml(WORKLOAD);
    let one = |kind: &str| objects.iter().find(|object| object["kind"] == kind).unwrap();
    let rights = Needs::default().rights().into_iter().filter(|right| right.cluster == Side::Workload);
    let asked: BTreeSet<_> = rights.map(|right| [right.group, right.resource, right.verb.to_owned()]).collect();
    assert_eq!(granted(one("ClusterRole")), asked);

    let (binding, account) = (one("ClusterRoleBinding"), &one("ServiceAccount")["metadata"]);
    assert_eq!(binding["roleRef"]["name"], one("ClusterRole")["metadata"]["name"]);
    let subject = json!({"kind": "ServiceAccount", "name": account["name"], "namespace": account["namespace"]});
    assert_eq!(binding["subjects"], json!([subject]));
    let token = one("Secret");
    assert_eq!(token["type"], "kubernetes.io/service-account-token");
    assert_eq!(token["metadata"]["annotations"]["kubernetes.io/service-account.name"], account["name"]);
    assert_eq!(token["metadata"]["namespace"], account["namespace"]);
}

/// Its kubeconfig is tested in `crates/connect/src/tests/secrets.rs`, as the program reads it.
#[test]
fn the_secret_for_nodes_is_the_one_that_the_commands_and_the_program_name() {
    let [secret] = &yaml(SECRET)[..] else { panic!("one document") };
    let name = "{cluster}-nodes";
    let named = name.parse::<SecretName>().unwrap().of(&"team-a/prod".parse::<ClusterRef>().unwrap());
    let found = (secret["metadata"]["name"].as_str().unwrap(), secret["metadata"]["namespace"].as_str().unwrap());
    assert_eq!(found, (named.name(), named.namespace()));
    assert_eq!(secret["stringData"].as_object().unwrap().keys().collect::<Vec<_>>(), ["value"]);
    let (commands, text) = (read("examples/fleet/README.md"), read(SECRET));
    for part in [&format!("--set consent.secretName={}", named.name()), &format!("fleet.workloadNodes={name:?}")] {
        assert!(commands.contains(part), "{part}");
    }
    for place in ["@AUTHORITY@", "@TOKEN@"] {
        assert!(text.matches(place).count() == 1 && commands.contains(&format!("s|{place}|")), "{place}");
    }
}
