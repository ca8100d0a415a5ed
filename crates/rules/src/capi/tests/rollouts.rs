//! Decoding of rollouts: a Cluster's topology, and the condition of a MachineDeployment.

use super::*;

/// Returns a Cluster whose topology has the MachineDeployments a, b, c and d, with these annotations.
fn topology(annotated: &[(&str, &str)], conditions: &Value) -> Cluster {
    let worker = |name: &str| {
        let own = annotated.iter().filter(|(of, _)| *of == name);
        let annotations: Value = own.map(|(_, key)| (format!("topology.cluster.x-k8s.io/{key}"), json!(""))).collect();
        json!({"name": name, "class": "default", "metadata": {"annotations": annotations}})
    };
    let object = json!({
        "spec": {"topology": {
            "version": "v1.36.0",
            "workers": {"machineDeployments": [worker("a"), worker("b"), worker("c"), {"name": "d"}]},
        }},
        "status": {"conditions": conditions},
    });
    Cluster::decode(meta_of(&object), &object).unwrap()
}

#[rstest]
#[case::nobody(&[], &[])]
#[case::one(&[("b", "defer-upgrade")], &["b"])]
#[case::one_and_all_that_follow(&[("b", "hold-upgrade-sequence")], &["b", "c", "d"])]
#[case::both(&[("a", "defer-upgrade"), ("c", "hold-upgrade-sequence")], &["a", "c", "d"])]
#[case::something_else(&[("a", "upgrade-concurrency")], &[])]
fn an_upgrade_is_held_back_for(#[case] annotated: &[(&str, &str)], #[case] expected: &[&str]) {
    let topology = topology(annotated, &json!([])).topology.unwrap();
    assert_eq!(topology.held_back, expected);
    assert_eq!((&*topology.version, topology.unreconciled_since), ("v1.36.0", None));
}

#[rstest]
#[case::at_work("False", Some("2026-01-01T00:00:00Z"))]
#[case::done("True", None)]
fn a_topology_is_at_work_since(#[case] status: &str, #[case] expected: Option<&str>) {
    let condition =
        json!({"type": "TopologyReconciled", "status": status, "lastTransitionTime": "2026-01-01T00:00:00Z"});
    let since = topology(&[], &json!([condition])).topology.unwrap().unreconciled_since;
    assert_eq!(since.map(|since| since.to_string()).as_deref(), expected);
}

#[test]
fn the_version_of_a_worker_is_pinned_or_the_clusters() {
    let workers = json!([{"name": "a", "version": "v1.35.0"}, {"name": "b", "version": ""}, {"name": "c"}]);
    let topology = json!({"version": "v1.36.0", "workers": {"machineDeployments": workers}});
    let object = json!({"spec": {"topology": topology}});
    let topology = Cluster::decode(meta_of(&object), &object).unwrap().topology.unwrap();
    let versions = ["a", "b", "c", "d"].map(|name| topology.version_of(name).as_str());
    assert_eq!(versions, ["v1.35.0", "v1.36.0", "v1.36.0", "v1.36.0"]);
}

#[test]
fn a_cluster_without_a_topology_has_none() {
    for spec in [json!({}), json!({"topology": null}), json!({"topology": {"classRef": {"name": "x"}}})] {
        let object = json!({"spec": spec});
        assert_eq!(Cluster::decode(meta_of(&object), &object).unwrap().topology, None);
    }
}

fn rolling_out(status: &str) -> Value {
    json!({"type": "RollingOut", "status": status, "lastTransitionTime": "2026-01-01T00:00:00Z"})
}

#[rstest]
#[case::v1beta2(json!({"conditions": [rolling_out("True")]}), true)]
#[case::v1beta1(json!({"v1beta2": {"conditions": [rolling_out("True")]}}), true)]
#[case::not_now(json!({"conditions": [rolling_out("False")]}), false)]
#[case::no_time(json!({"conditions": [{"type": "RollingOut", "status": "True"}]}), false)]
#[case::no_condition(json!({}), false)]
fn a_machine_deployment_is_rolling_out_since(#[case] status: Value, #[case] expected: bool) {
    let since = deployment(&json!({"status": status})).rolling_out_since;
    assert_eq!(since.map(|since| since.to_string()), expected.then(|| "2026-01-01T00:00:00Z".to_owned()));
}

#[test]
fn a_real_rollout_has_two_revisions_and_says_since_when() {
    let objects = management("rollout", "v1beta2");
    let Read::Scalable(workers) = &objects["MachineDeployment/stage-md-0-mnr6p"] else { panic!("it isn't there") };
    assert_eq!(workers.rolling_out_since, Some("2026-11-21T02:06:42Z".parse().unwrap()));
    assert_eq!(workers.version.as_deref(), Some("v1.35.0"));
    let [newest, older] = ["jscrt", "x9wfq"].map(|name| &objects[&format!("MachineSet/stage-md-0-mnr6p-{name}")]);
    let (Read::Scalable(newest), Read::Scalable(older)) = (newest, older) else { panic!("they aren't there") };
    assert_eq!((older.revision, newest.revision), (Some(1), Some(2)));
    for set in [older, newest] {
        assert_eq!(set.deployment.as_deref(), Some("stage-md-0-mnr6p"));
    }
    assert_eq!(newest.created, Some("2026-11-21T02:06:41Z".parse().unwrap()));
    let Read::Cluster(cluster) = &objects["Cluster/stage"] else { panic!("it isn't there") };
    let topology = cluster.topology.as_deref().unwrap();
    assert_eq!((&*topology.version, topology.unreconciled_since), ("v1.35.0", None));
}

/// The message as Cluster API 1.14 writes it.
const BLOCKED: &str = "Scaling up from 2 to 3 replicas is blocked because:\n* LoopbackControlPlane team-a/prod is upgrading \
                       (\"ControlPlaneIsStable\" preflight check failed)\n* MachineSet version (1.35.0) is not yet the same";

fn says(kind: &str, status: &str, message: &str) -> Value {
    json!({"type": kind, "status": status, "reason": "PreflightCheckFailed", "message": message})
}

#[rstest]
#[case::v1beta2(json!({"conditions": [says("ScalingUp", "True", BLOCKED)]}), 2)]
#[case::v1beta1(json!({"v1beta2": {"conditions": [says("ScalingUp", "True", BLOCKED)]}}), 2)]
#[case::before_1_9(json!({"conditions": [says("MachinesCreated", "False", "LoopbackControlPlane team-a/prod is upgrading")]}), 1)]
#[case::it_scales_up(json!({"conditions": [says("ScalingUp", "True", "Scaling up from 2 to 3 replicas")]}), 0)]
#[case::it_does_not_scale_up(json!({"conditions": [says("ScalingUp", "False", "Scaling up would be blocked because x")]}), 0)]
#[case::the_older_condition_is_left_over(
    json!({"v1beta2": {"conditions": [says("ScalingUp", "False", "")]}, "conditions": [says("MachinesCreated", "False", "x")]}), 0
)]
#[case::no_condition(json!({}), 0)]
fn a_machine_set_says_what_holds_its_machines_back(#[case] status: Value, #[case] reasons: usize) {
    let object = json!({ "status": status });
    let why = scalable(ScalableKind::MachineSet, &object).held_back;
    assert_eq!(why.as_deref().map_or(0, |why| why.split("; ").count()), reasons, "{why:?}");
    assert!(why.is_none_or(|why| why.starts_with("LoopbackControlPlane team-a/prod is upgrading")));
    assert_eq!(scalable(ScalableKind::MachineDeployment, &object).held_back, None);
}

/// The domain of the annotation is that of the API group: a rollout of Kubermatic's is seen by it.
#[rstest]
#[case::of_cluster_api("cluster.x-k8s.io", "machinedeployment.clusters.x-k8s.io/revision", Some(2))]
#[case::of_kubermatic("cluster.k8s.io", "machinedeployment.clusters.k8s.io/revision", Some(2))]
#[case::of_another_group("cluster.k8s.io", "machinedeployment.clusters.x-k8s.io/revision", None)]
fn a_machine_set_has_the_revision_of_its_api_group(
    #[case] group: &str,
    #[case] key: &str,
    #[case] expected: Option<i64>,
) {
    let object = json!({"metadata": {"name": "pool-a-2", "annotations": {key: "2"}}, "spec": {"replicas": 1}});
    let set = ScalableResource::decode(ScalableKind::MachineSet, meta_of(&object), &object, &Context::new(group));
    assert_eq!(set.unwrap().revision, expected);
}

#[rstest]
#[case::v1beta1(json!({"strategy": {"type": "OnDelete"}}), true)]
#[case::v1beta2(json!({"rollout": {"strategy": {"type": "OnDelete"}}}), true)]
#[case::another(json!({"rollout": {"strategy": {"type": "RollingUpdate"}}}), false)]
#[case::none(json!({}), false)]
fn a_machine_deployment_rolls_out_by_deletions(#[case] spec: Value, #[case] expected: bool) {
    assert_eq!(scalable(ScalableKind::MachineDeployment, &json!({"spec": spec})).on_delete, expected);
}
