//! Tests of the rendered policies: off by default, and their users and scope.

use e2e::helm::Values;
use serde_json::{Value, json};

use crate::{
    helm,
    switches::{base, names, of_kind, render},
};

const POLICY: &str = "ValidatingAdmissionPolicy";
const BINDING: &str = "ValidatingAdmissionPolicyBinding";

fn enabled(values: &Values) -> Values {
    let both = json!({ "deletionLog": { "enabled": true }, "annotations": { "enabled": true } });
    values.clone().set("admissionPolicies", both)
}

fn conditions(policy: &Value) -> Vec<&str> {
    let conditions = policy["spec"]["matchConditions"].as_array().unwrap();
    conditions.iter().map(|condition| condition["name"].as_str().unwrap()).collect()
}

#[test]
fn nothing_is_made_unless_it_is_enabled() {
    assert_eq!(names(&render(&base()), POLICY), [""; 0]);
    let objects = render(&enabled(&base()));
    let all = ["annotations", "deletion-log", "deletion-log-topologies"];
    let all = all.map(|of| format!("-/capi-autoscaler-provider-team-a-{of}"));
    assert_eq!((names(&objects, POLICY), names(&objects, BINDING)), (all.to_vec(), all.to_vec()));
    let bindings = of_kind(&objects, BINDING);
    let with = |actions: Value| bindings.iter().filter(|it| it["spec"]["validationActions"] == actions).count();
    assert_eq!((with(json!(["Deny"])), with(json!(["Warn", "Audit"]))), (2, 1));
}

#[test]
fn they_hold_where_the_release_serves_node_groups() {
    let namespaces = |values: &Values| {
        let objects = render(&enabled(values));
        // A class of another namespace can be a topology's too.
        let (everywhere, bindings): (Vec<_>, Vec<_>) = of_kind(&objects, BINDING)
            .into_iter()
            .partition(|it| it["metadata"]["name"].to_string().contains("topologies"));
        assert!(everywhere.iter().all(|it| it["spec"]["matchResources"].is_null()), "{everywhere:?}");
        let selectors: Vec<_> = bindings
            .iter()
            .map(|it| it["spec"]["matchResources"]["namespaceSelector"]["matchExpressions"][0]["values"].clone())
            .collect();
        assert_eq!(selectors[0], selectors[1]);
        let policies = of_kind(&objects, POLICY);
        let of_one = policies.iter().filter(|policy| conditions(policy).contains(&"of-the-cluster")).count();
        (selectors[0].clone(), of_one)
    };
    assert_eq!(namespaces(&base()), (json!(["team-a"]), 2));
    let specs = json!({ "specs": ["clusterapi:namespace=a,clusterName=x", "clusterapi:namespace=b"] });
    assert_eq!(namespaces(&Values::new("team-a", json!({ "autoDiscovery": specs }))), (json!(["a", "b"]), 0));
    let wide = json!({ "autoDiscovery": { "allClusters": true }, "rbac": { "clusterScoped": true } });
    assert_eq!(namespaces(&Values::new("team-a", wide)), (Value::Null, 0));
}

#[test]
fn they_follow_the_api_group_and_name_the_service_account() {
    let values = enabled(&base())
        .set("extraArgs", json!({ "capi-group": "machine.openshift.io" }))
        .set("rbac.serviceAccount", json!({ "name": "scaler" }))
        .set("admissionPolicies.deletionLog.users", json!(["system:serviceaccount:team-a:other"]));
    let objects = render(&values);
    for policy in of_kind(&objects, POLICY) {
        assert_eq!(
            policy["spec"]["matchConstraints"]["resourceRules"][0]["apiGroups"],
            json!(["machine.openshift.io"])
        );
        assert!(!policy.to_string().contains("cluster.x-k8s.io/cluster-api-autoscaler"), "{policy}");
    }
    let policies = of_kind(&objects, POLICY);
    let of_the_log: Vec<_> = policies.iter().filter(|policy| conditions(policy).contains(&"not-of-who-may")).collect();
    assert_eq!(of_the_log.len(), 2);
    for log in of_the_log {
        let who = log["spec"]["matchConditions"][0]["expression"].as_str().unwrap();
        for user in ["team-a:scaler", "team-a:other", "capi-system:capi-manager"] {
            assert!(who.contains(&format!("\"system:serviceaccount:{user}\"")), "{user} isn't in {who}");
        }
    }
}

#[test]
fn with_a_kubeconfig_for_the_management_cluster_the_programs_user_has_to_be_named() {
    let values = Values::of_topology("two-kubeconfigs", "autoscaling").unwrap();
    let values = values.set("admissionPolicies", json!({ "deletionLog": { "enabled": true } }));
    let said = helm().refuse(&values).unwrap();
    assert!(said.contains("name its user there in admissionPolicies.deletionLog.users"), "{said}");
    let named = values.set("admissionPolicies.deletionLog.users", json!(["autoscaler"]));
    let objects = render(&named);
    let who = of_kind(&objects, POLICY)[0]["spec"]["matchConditions"][0]["expression"].as_str().unwrap();
    assert!(who.contains("\"autoscaler\"") && !who.contains("autoscaling:"), "{who}");
}

#[test]
fn texts_that_would_end_a_string_of_an_expression_and_actions_that_exclude_each_other_are_refused() {
    for (path, value) in [
        ("deletionLog.users", json!(["a'b"])),
        ("deletionLog.groups", json!(["a\"b"])),
        ("deletionLog.clusterAPIUsers", json!(["a\\"])),
        ("annotations.validationActions", json!(["Deny", "Warn"])),
        ("annotations.validationActions", json!([])),
    ] {
        let said = helm().refuse(&enabled(&base()).set(&format!("admissionPolicies.{path}"), value.clone())).unwrap();
        assert!(said.contains("the schema"), "{path} {value}: {said}");
    }
}
